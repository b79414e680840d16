"""The whole examination: facts of this machine gathered once, torch loaded once, and each check asked."""

import sys
from collections.abc import Iterator

from ddtree.workbook.doctor.finding import Finding
from ddtree.workbook.doctor.interpreter import examine_python
from ddtree.workbook.doctor.jupyter import examine_kernelspec, this_kernelspec
from ddtree.workbook.doctor.packages import examine_packages, examine_tools, installed_versions
from ddtree.workbook.doctor.pins import read_pins
from ddtree.workbook.doctor.programs import examine_browser
from ddtree.workbook.doctor.room import examine_memory, examine_outputs, free_memory_gib
from ddtree.workbook.doctor.serving import examine_serving
from ddtree.workbook.doctor.sweeps import examine_sweeps
from ddtree.workbook.paths import project_root


def examine(executable: str) -> list[Finding]:
    """Every finding, in the order in which one would mend them; `executable` is this interpreter, as it is shown.

    A library that cannot be loaded is a finding, and so are the checks that need it.
    Raises ProjectRootError outside the repository, whose pyproject.toml holds the pins.
    """
    root, pip = project_root(), f"{executable} -m pip"
    pins, installed = read_pins(root / "pyproject.toml"), installed_versions()
    python = sys.version.split()[0]
    return [
        examine_python(python, executable, pins.python),
        *examine_packages(pins, installed, pip),
        *_needing_torch(),
        examine_memory(free_memory_gib()),
        examine_outputs(root / "outputs", "outputs/"),
        *_needing_jupyter(pip),
        examine_browser(),
        examine_sweeps(pins, installed, pip),
        examine_serving(pins, installed, pip),
        examine_tools(pins, installed, pip),
    ]


def _needing_torch() -> Iterator[Finding]:
    try:
        import torch

        from ddtree.models.cache_folder import cache_folder
        from ddtree.models.zoo import ZOO
        from ddtree.verify import backend_report
        from ddtree.workbook.doctor import models
        from ddtree.workbook.doctor.backends import examine_backends
        from ddtree.workbook.doctor.gpu import examine_gpu, this_gpu
        from ddtree.workbook.doctor.processor import examine_processor, this_processor
        from ddtree.workbook.doctor.room import examine_disk, free_disk_gib
    except (ImportError, OSError) as error:  # OSError: a shared library of torch that is not there
        yield Finding("models", "missing", f"torch and the models cannot be loaded: {error}", "mend the packages first")
        return
    yield from examine_processor(this_processor(torch.get_num_threads()))
    yield examine_gpu(this_gpu(torch))
    yield examine_backends("cpu", backend_report("cpu"))
    if torch.cuda.is_available():
        yield examine_backends("cuda", backend_report("cuda"))
    yield examine_disk(free_disk_gib(cache_folder()), str(cache_folder()))
    for model in ZOO:
        yield models.examine_target(models.target_entry(model))
        yield models.examine_drafter(model, models.asset_folder(model), models.drafter_entries(model))


def _needing_jupyter(pip: str) -> Iterator[Finding]:
    try:
        yield examine_kernelspec(this_kernelspec(), sys.executable, pip)
    except ImportError as error:
        yield Finding("kernel", "missing", f"Jupyter cannot be loaded: {error}", "mend the packages first")
