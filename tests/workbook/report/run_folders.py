"""Folders of runs as they are left on disk, made by hand: done, failed, stopped, killed, broken, foreign."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from executed_notebook import code, raised, save

NO_TIMES: Mapping[str, str] = {}
MACHINE = {
    "python": "3.11.7",
    "platform": "Linux",
    "cpu": "Some CPU",
    "physical_cores": 2,
    "memory_gib": 8.0,
    "torch_threads": 2,
    "gpu": None,
    "packages": {"ddtree": "0.1.0", "torch": "2.13.0", "sglang": None},
}


def record(notebook: str = "03_live", **changes: Any) -> dict[str, Any]:
    """A whole result.json; `changes` replace its fields."""
    whole = {
        "schema": 1,
        "notebook": notebook,
        "finished_utc": "2026-03-01T10:00:00+00:00",
        "seed": 0,
        "wall_s": 75.0,
        "peak_rss_mib": 100.0,
        "git_revision": None,
        "environment": MACHINE,
        "params": {"model": "small", "budget": 16, "out_dir": "outputs/x"},
        "metrics": {},
    }
    return whole | changes


def setting(temperature: float, label: str, speedup: float, acceptance: float) -> dict[str, Any]:
    """One row of the summary of 03_live; its interval is a tenth to either side."""
    return {
        "temperature": temperature,
        "label": label,
        "strategy": label.split()[0],
        "speedup": speedup,
        "speedup_lo": speedup - 0.1,
        "speedup_hi": speedup + 0.1,
        "acceptance": acceptance,
    }


def write_record(folder: Path, whole: Any) -> Path:
    """FOLDER/result.json with this content."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(whole))
    return folder


def write_run(folder: Path, **changes: Any) -> Path:
    """FOLDER/run.json with what `record` holds of the start."""
    names = ("schema", "notebook", "seed", "git_revision", "environment", "params")
    start = {name: record()[name] for name in names} | {"started_utc": "2026-03-01T09:58:00.5+00:00"}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(start | changes))
    return folder


def write_notebook(
    folder: Path, *, executed: int = 2, error: str = "", times: Mapping[str, str] = NO_TIMES, **metadata: Any
) -> Path:
    """FOLDER/executed.ipynb of 03_live, of two code cells, with `error` raised by the second.

    `times` are papermill's start_time and end_time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    cells = [code("1"), code("2", *([raised("ValueError", error)] if error else []))]
    for number, cell in enumerate(cells, start=1):
        cell.execution_count = number if number <= executed else None
    path = save(folder, "# Live", *cells)
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata["papermill"] = {"input_path": "notebooks/03_live.ipynb", "duration": 3.0} | times
    notebook.metadata |= metadata
    nbformat.write(notebook, path)
    return folder
