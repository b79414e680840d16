"""Keep models between runs in one folder: an entry appears whole or not at all, and is checked before it is used."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

VARIABLE = "DDTREE_CACHE"
MANIFEST = ".manifest.json"  # in each entry: {"files": {relative path: {"size": bytes, "sha256": hex digest}}}
WRITE_ERRORS = {errno.EACCES, errno.EDQUOT, errno.ENOSPC, errno.EPERM, errno.EROFS}


class CacheError(OSError):
    """The cache cannot be written; the message names the folder and the variable that moves it."""


def cache_folder() -> Path:
    """`$DDTREE_CACHE`, or the user's cache folder for ddtree if that is unset or empty."""
    chosen = os.environ.get(VARIABLE)
    return Path(chosen) if chosen else user_cache_path("ddtree")


def get_or_create(name: str, fill: Callable[[Path], None], *, hashes: bool = False) -> Path:
    """The cache entry `name`, created by `fill(empty folder)` if it is missing or damaged.

    Every call compares the sizes of its files with its manifest, and with `hashes` their contents too. A damaged entry
    is named in a printed sentence, and replaced once `fill` has succeeded. If two processes call at once, one fills and
    the other waits. A fill that fails or is killed leaves no entry.

    Raises CacheError if the cache cannot be written; other errors of `fill` are passed on.
    """
    root = cache_folder()
    entry = root / name
    if _is_whole(entry, hashes):
        return entry
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = FileLock(root / f"{name}.lock")
        lock.acquire()
    except OSError as error:
        raise _cannot_write(root, error) from error
    try:
        if not _is_whole(entry, hashes):  # another process may have filled it while this one waited
            _create_locked(root, name, fill, hashes)
    except Exception as error:
        if _is_write_error(error, root):
            raise _cannot_write(root, error) from error
        raise
    finally:
        lock.release()
    return entry


def corruption(entry: Path, *, hashes: bool = False) -> str | None:
    """How the files of an existing entry differ from its manifest, in words; None if they do not."""
    try:
        files = json.loads((entry / MANIFEST).read_text(encoding="utf-8"))["files"]
        expected = {name: (facts["size"], facts["sha256"]) for name, facts in files.items()}
    except FileNotFoundError:
        return "it has no manifest"
    except (ValueError, LookupError, TypeError, AttributeError):
        return "its manifest cannot be read"
    for name, (size, digest) in expected.items():
        path = entry / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size} bytes, expected {size}"
        if hashes and sha256(path) != digest:
            return f"{name} has sha256 {sha256(path)}, expected {digest}"
    return None


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_whole(entry: Path, hashes: bool) -> bool:
    return entry.is_dir() and corruption(entry, hashes=hashes) is None


def _create_locked(root: Path, name: str, fill: Callable[[Path], None], hashes: bool) -> None:
    entry = root / name
    for stale in root.glob(f".{name}.????????.tmp"):  # this process holds the lock, so the one that made it is gone
        shutil.rmtree(stale, ignore_errors=True)
    if entry.is_dir():
        reason = corruption(entry, hashes=hashes)
        print(f"the cache entry {entry} is damaged: {reason}; it is fetched again.", flush=True)
    unfinished, replaced = _temporary(root, name), _temporary(root, name)
    try:
        unfinished.mkdir()  # with the user's umask, unlike tempfile
        fill(unfinished)
        _write_manifest(unfinished)
        if entry.is_dir():
            entry.rename(replaced)
        unfinished.rename(entry)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)


def _temporary(root: Path, name: str) -> Path:
    return root / f".{name}.{secrets.token_hex(4)}.tmp"


def _write_manifest(folder: Path) -> None:
    files = {
        path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "sha256": sha256(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    manifest = folder / MANIFEST
    manifest.write_text(json.dumps({"files": files}, indent=1) + "\n", encoding="utf-8")
    for name in files:  # safetensors files are readable by their owner only; the umask may allow more
        (folder / name).chmod(manifest.stat().st_mode)


def _is_write_error(error: Exception, root: Path) -> bool:
    """Whether the disk is full or read-only, as opposed to a network or a source that failed during a fill."""
    if not isinstance(error, OSError):
        return f"os error {errno.ENOSPC}" in str(error)  # an error of safetensors, which has its own class
    elsewhere = error.filename is not None and not Path(os.fsdecode(error.filename)).is_relative_to(root)
    return error.errno in WRITE_ERRORS and not elsewhere


def _cannot_write(root: Path, error: Exception) -> CacheError:
    return CacheError(
        f"the model cache {root} cannot be written ({error}); free some space or set {VARIABLE} to another folder."
    )
