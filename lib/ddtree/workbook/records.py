"""What a run leaves on disk: result.json is written last and whole, so its presence means that the run is done."""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddtree.workbook.machine import environment, git_revision, peak_rss_mib
from ddtree.workbook.params import NotebookParams

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "RecordError",
    "append_jsonl",
    "environment",
    "git_revision",
    "read_result",
    "rows_of",
    "write_result",
    "write_text",
    "write_traces",
]

SCHEMA_VERSION = 1
RESULT_NAME = "result.json"


class RecordError(OSError):
    """A record could not be written or read; the message names the folder or file."""


def write_result(
    out_dir: str | Path, *, notebook: str, params: NotebookParams, metrics: Mapping[str, Any], wall_s: float
) -> Path:
    """Write OUT_DIR/result.json and return its path.

    `metrics` may hold numbers, texts, None, lists and mappings (numpy scalars and arrays become plain);
    `wall_s` is in seconds. Raises ValueError for NaN or infinity: say None where a value does not exist.
    Raises RecordError when the folder cannot be written.
    """
    record = {
        "schema": SCHEMA_VERSION,
        "notebook": notebook,
        "finished_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": params.seed,
        "wall_s": wall_s,
        "peak_rss_mib": peak_rss_mib(),
        "git_revision": git_revision(),
        "environment": environment(),
        "params": params.to_plain(),
        "metrics": metrics,
    }
    path = Path(out_dir) / RESULT_NAME
    write_text(path, json.dumps(_plain(record, "result"), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return path


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A frame as one mapping per row, None where it holds no value: what `write_result` takes."""
    cells = frame.astype(object).where(frame.notna(), None)
    return [dict(zip(frame.columns, row, strict=True)) for row in cells.itertuples(index=False, name=None)]


def read_result(path: str | Path) -> dict[str, Any]:
    """The record in `path`, a result.json or the folder that holds it. Raises RecordError."""
    path = Path(path)
    if path.is_dir():
        path = path / RESULT_NAME
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(f"The result {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise RecordError(f"The result {path} is not valid JSON: {error}.") from error
    found = record.get("schema") if isinstance(record, dict) else None
    if found != SCHEMA_VERSION:
        raise RecordError(f"The result {path} has schema {found!r}, but this version reads {SCHEMA_VERSION}.")
    return dict(record)


def write_traces(out_dir: str | Path, name: str, frame: pd.DataFrame) -> Path:
    """Write `frame` to OUT_DIR/NAME.parquet, whole or not at all, and return the path. Raises RecordError."""
    path = Path(out_dir) / f"{name}.parquet"
    _replace(path, lambda temporary: frame.to_parquet(temporary, index=False))
    return path


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` in UTF-8, whole or not at all; folders are made. Raises RecordError."""
    _replace(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def append_jsonl(path: str | Path, record: Mapping[str, Any]) -> None:
    """Add one line to `path` and wait until it is on disk. Raises ValueError for NaN, RecordError for the disk."""
    path = Path(path)
    line = json.dumps(_plain(record, "record"), ensure_ascii=False, allow_nan=False) + "\n"
    with _naming(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    with _naming(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        temporary = Path(name)
        try:
            write(temporary)
            os.fsync(descriptor)
            temporary.chmod(0o644)  # mkstemp lets only the owner read; a result is for colleagues too
            os.replace(temporary, path)
        finally:
            os.close(descriptor)
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _naming(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RecordError(
            f"Nothing can be written to the folder {folder}: {error.strerror or error}; "
            "choose another out_dir or make room."
        ) from error


def _plain(value: Any, where: str) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(member, f"{where}.{key}") for key, member in value.items()}
    if hasattr(value, "tolist"):  # numpy and torch
        return _plain(value.tolist(), where)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(member, f"{where}[{index}]") for index, member in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is {value}, which JSON cannot hold; use None where a value does not exist.")
    if value is None or isinstance(value, str | int | float):
        return value
    raise ValueError(f"{where} is a {type(value).__name__}; only numbers, texts, None, lists and mappings fit.")
