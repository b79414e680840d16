"""Write and read the records of a run: run.json at its start, result.json and traces at its end.

Every file is written whole or not at all, so the presence of result.json means that the run is done."""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from ddtree.workbook.params import NotebookParams
from ddtree.workbook.paths import project_root

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1
RUN_NAME = "run.json"
RESULT_NAME = "result.json"
EXECUTED_NAME = "executed.ipynb"
REPORT_NAME = "report.html"
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


class RecordError(OSError):
    """A record could not be written or read; the message names the folder or file."""


def write_run(out_dir: str | Path, *, notebook: str, params: NotebookParams, started_utc: datetime) -> Path:
    """Write OUT_DIR/run.json, what is known before the first measurement, and return its path. Raises RecordError."""
    facts = {"schema": SCHEMA_VERSION, "notebook": notebook, "started_utc": started_utc.isoformat(), **_facts(params)}
    return _write_record(Path(out_dir) / RUN_NAME, facts)


def write_result(
    out_dir: str | Path,
    *,
    notebook: str,
    params: NotebookParams,
    metrics: Mapping[str, Any],
    wall_s: float,
    started_utc: datetime | None = None,
) -> Path:
    """Write OUT_DIR/result.json and return its path.

    `metrics` may hold numbers, texts, None, lists and mappings (numpy scalars and arrays become plain);
    `wall_s` is in seconds. `started_utc` is that of the run.json of the same run, None for a program that writes none.
    Raises ValueError for NaN or infinity (None means that a value does not exist), RecordError when the folder cannot
    be written.
    """
    record = {
        "schema": SCHEMA_VERSION,
        "notebook": notebook,
        **({"started_utc": started_utc.isoformat()} if started_utc else {}),
        "finished_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "wall_s": wall_s,
        "peak_rss_mib": peak_rss_mib(),
        **_facts(params),
        "metrics": metrics,
    }
    return _write_record(Path(out_dir) / RESULT_NAME, record)


def read_result(path: str | Path) -> dict[str, Any]:
    """The record in `path`, a result.json (or run.json), or the folder that holds a result.json. Raises RecordError."""
    path = Path(path)
    if path.is_dir():
        path = path / RESULT_NAME
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(f"The record {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise RecordError(f"The record {path} is not valid JSON: {error}.") from error
    found = record.get("schema") if isinstance(record, dict) else None
    if found != SCHEMA_VERSION:
        raise RecordError(f"The record {path} has schema {found!r}, but this version reads {SCHEMA_VERSION}.")
    return dict(record)


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A frame as one mapping per row, None where it holds no value: what `write_result` takes."""
    cells = frame.astype(object).where(frame.notna(), None)
    return [dict(zip(frame.columns, row, strict=True)) for row in cells.itertuples(index=False, name=None)]


def write_traces(out_dir: str | Path, name: str, frame: pd.DataFrame) -> Path:
    """Write `frame` to OUT_DIR/NAME.parquet, whole or not at all, and return the path. Raises RecordError."""
    path = Path(out_dir) / f"{name}.parquet"
    _write_whole(path, lambda temporary: frame.to_parquet(temporary, index=False))
    return path


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` in UTF-8, whole or not at all; folders are made. Raises RecordError."""
    _write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def append_jsonl(path: str | Path, record: Mapping[str, Any]) -> None:
    """Add one line to `path` and wait until it is on disk. Raises ValueError for NaN, RecordError for the disk."""
    path = Path(path)
    line = json.dumps(_plain(record, "record"), ensure_ascii=False, allow_nan=False) + "\n"
    with _as_record_error(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


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


def _facts(params: NotebookParams) -> dict[str, Any]:
    return {
        "seed": params.seed,
        "git_revision": git_revision(),
        "environment": environment(),
        "params": params.to_plain(),
    }


def _write_record(path: Path, record: Mapping[str, Any]) -> Path:
    text = json.dumps(_plain(record, path.stem), indent=2, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")
    return path


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


def _write_whole(path: Path, write: Callable[[Path], object]) -> None:
    with _as_record_error(path.parent):
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
def _as_record_error(folder: Path) -> Iterator[None]:
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
