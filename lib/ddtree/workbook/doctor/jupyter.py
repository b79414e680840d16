"""The kernel that notebooks start: a kernelspec `python3` may name another interpreter, with other packages."""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from ddtree.workbook.doctor.finding import Finding

KERNEL = "python3"
# Jupyter looks none of these up: it puts the interpreter that it runs on in their place.
OWN_NAMES = ("python", f"python{sys.version_info[0]}", f"python{sys.version_info[0]}.{sys.version_info[1]}")


@dataclass(frozen=True, slots=True)
class Kernelspec:
    """The program that Jupyter would start as `python3`, and the folder that says so; both "" without it."""

    program: str
    folder: str


def this_kernelspec() -> Kernelspec:
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        spec = KernelSpecManager().get_kernel_spec(KERNEL)
    except NoSuchKernel:
        return Kernelspec("", "")
    return Kernelspec(spec.argv[0] if spec.argv else "", spec.resource_dir)


def examine_kernelspec(spec: Kernelspec, executable: str, pip: str) -> Finding:
    """`executable` is the whole path of the interpreter that runs `ddtree`."""
    if not spec.program:
        return Finding("kernel", "missing", f"Jupyter knows no kernel {KERNEL}", f"{pip} install ipykernel")
    if spec.program in OWN_NAMES or _same_environment(spec.program, executable):
        return Finding("kernel", "ok", f"{KERNEL} starts the interpreter that runs ddtree")
    return Finding(
        "kernel",
        "missing",
        f"{KERNEL} starts {spec.program}, another interpreter than {executable}, so notebooks miss this environment",
        f"remove the folder {spec.folder}",
    )


def _same_environment(program: str, executable: str) -> bool:
    """Whether both lie in one folder: the programs of virtual environments are links to one python elsewhere."""
    found = shutil.which(program) or program
    return Path(found).parent.resolve() == Path(executable).parent.resolve()
