"""The folder that keeps models between runs: an entry appears whole or not at all, and is checked before it is used."""

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
CANNOT_WRITE = {errno.EACCES, errno.EDQUOT, errno.ENOSPC, errno.EPERM, errno.EROFS}


class CacheError(OSError):
    """Nothing can be written to the cache; the message names the folder and the variable that moves it."""


def cache_folder() -> Path:
    """`$DDTREE_CACHE`, else the user's cache folder for ddtree."""
    chosen = os.environ.get(VARIABLE)
    return Path(chosen) if chosen else user_cache_path("ddtree")


def filled(name: str, fill: Callable[[Path], None], *, hashes: bool = False) -> Path:
    """The cache entry `name`, made by `fill(empty folder)` if it is not there yet or is damaged.

    Sizes of its files are compared with its manifest at every call, with `hashes` their contents too. A damaged entry
    is named in a printed sentence, and replaced once the fill has succeeded. Two processes may ask at once: one fills,
    the other waits. A fill that fails or is killed leaves no entry.

    Raises CacheError where nothing can be written; what else `fill` raises is passed on.
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
            _fill_locked(root, name, fill, hashes)
    except Exception as error:
        if _is_about_writing(error, root):
            raise _cannot_write(root, error) from error
        raise
    finally:
        lock.release()
    return entry


def damage(entry: Path, *, hashes: bool = False) -> str | None:
    """What is wrong with the files of an entry that is there, in words; None if all is as its manifest says."""
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
    return entry.is_dir() and damage(entry, hashes=hashes) is None


def _fill_locked(root: Path, name: str, fill: Callable[[Path], None], hashes: bool) -> None:
    entry = root / name
    for leftover in root.glob(f".{name}.????????.tmp"):  # we hold the lock, so whoever made it is gone
        shutil.rmtree(leftover, ignore_errors=True)
    if entry.is_dir():
        print(f"the cache entry {entry} is damaged: {damage(entry, hashes=hashes)}; it is fetched again.", flush=True)
    unfinished, damaged = _temporary(root, name), _temporary(root, name)
    try:
        unfinished.mkdir()  # with the user's umask, unlike tempfile
        fill(unfinished)
        _write_manifest(unfinished)
        if entry.is_dir():
            entry.rename(damaged)
        unfinished.rename(entry)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.rmtree(damaged, ignore_errors=True)


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
    for name in files:  # safetensors lets only the owner read; the umask may be more generous
        (folder / name).chmod(manifest.stat().st_mode)


def _is_about_writing(error: Exception, root: Path) -> bool:
    """Whether the disk is full or closed to us, told apart from a network or a source that failed during a fill."""
    if not isinstance(error, OSError):
        return f"os error {errno.ENOSPC}" in str(error)  # safetensors has an error class of its own
    elsewhere = error.filename is not None and not Path(os.fsdecode(error.filename)).is_relative_to(root)
    return error.errno in CANNOT_WRITE and not elsewhere


def _cannot_write(root: Path, error: Exception) -> CacheError:
    return CacheError(
        f"the model cache {root} cannot be written ({error}); free some space or set {VARIABLE} to another folder."
    )
