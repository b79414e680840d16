"""What a run ran on: versions, processor, code revision; nothing here loads a heavy library."""

import platform
import resource
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from ddtree.workbook.paths import project_root

PACKAGES = (
    "ddtree",
    "torch",
    "transformers",
    "dflash",
    "numpy",
    "pandas",
    "plotly",
    "papermill",
    "nbconvert",
    "ipykernel",
    "sglang",
    "sgl-kernel",
    "triton",
)


def environment() -> dict[str, Any]:
    """Versions and hardware. A package that is not installed is null.

    `torch_threads` and `gpu` are read from torch when this process has loaded it, else null: a run that
    never loaded torch used neither.
    """
    torch = sys.modules.get("torch")
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu_name(),
        "physical_cores": psutil.cpu_count(logical=False),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "torch_threads": torch.get_num_threads() if torch else None,
        "gpu": torch.cuda.get_device_name() if torch and torch.cuda.is_available() else None,
        "packages": {name: _version(name) for name in PACKAGES},
    }


def git_revision(folder: Path | None = None) -> str | None:
    """The commit of `folder` (default: the project), with "-dirty" when a tracked file differs; None outside git."""
    folder = folder or project_root()
    head = _git(folder, "rev-parse", "HEAD")
    if head is None:
        return None
    return head + ("-dirty" if _git(folder, "status", "--porcelain", "--untracked-files=no") else "")


def peak_rss_mib() -> float:
    """The largest resident memory of this process so far, in MiB."""
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux KiB
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20, 1)


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:  # git is not installed
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
