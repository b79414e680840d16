"""The folder that keeps models between runs: filled under a lock, each entry appearing whole or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

VARIABLE = "DDTREE_CACHE"


def cache_folder() -> Path:
    """`$DDTREE_CACHE`, else the user's cache folder for ddtree."""
    chosen = os.environ.get(VARIABLE)
    return Path(chosen) if chosen else user_cache_path("ddtree")


def filled(name: str, fill: Callable[[Path], None]) -> Path:
    """The cache entry `name`, made by `fill(empty folder)` if it is not there yet.

    Two processes may ask at once: one fills, the other waits. A fill that fails or is killed leaves no entry.
    Raises OSError, naming the folder and the variable that moves it, where nothing can be written.
    """
    root = cache_folder()
    entry = root / name
    if entry.is_dir():
        return entry
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f"{name}.lock"):
            if entry.is_dir():
                return entry
            unfinished = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=root))
            try:
                fill(unfinished)
                unfinished.rename(entry)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
    except OSError as error:
        raise OSError(
            f"the model cache {root} cannot be written ({error}); free some space or set {VARIABLE} to another folder."
        ) from error
    return entry


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
