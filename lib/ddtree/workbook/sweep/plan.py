"""The plan of a sweep, sweep.json: every cell with its name and all its parameters; equal parameters, equal name."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddtree.workbook.params import NotebookParams
from ddtree.workbook.paths import project_root
from ddtree.workbook.records import RecordError, write_text
from ddtree.workbook.sweep.grid import SET_BY_SWEEP, Grid

SCHEMA_VERSION = 1
PLAN_NAME = "sweep.json"
CELLS_NAME = "cells"
DIGEST_LENGTH = 10  # hexadecimal digits
LONGEST_NAME = 150  # characters before the digest; file systems allow 255 bytes
LONGEST_VALUE = 24


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of the notebook: the name of its folder and every parameter but `threads`, which the jobs share."""

    id: str
    params: dict[str, Any]

    @property
    def gpus(self) -> int:
        return int(self.params.get("device") == "cuda")


@dataclass(frozen=True, slots=True)
class Plan:
    """What sweep.json holds. `axes` are the values as the sweep file gives them."""

    file: str
    notebook: str
    axes: dict[str, list[Any]]
    cells: list[Cell]

    def cell(self, cell_id: str) -> Cell:
        """Raises KeyError for a name that is not in the plan."""
        found = {cell.id: cell for cell in self.cells}
        return found[cell_id]

    def write(self, folder: Path) -> Path:
        """Write FOLDER/sweep.json, whole or not at all. Raises RecordError."""
        path = folder / PLAN_NAME
        record = {"schema": SCHEMA_VERSION, **dataclasses.asdict(self)}
        write_text(path, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
        return path


def read_plan(path: Path) -> Plan:
    """The plan in the file `path`. Raises RecordError for a file that is none, or of another schema."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        found = record["schema"]
        if found == SCHEMA_VERSION:
            cells = [Cell(cell["id"], cell["params"]) for cell in record["cells"]]
            return Plan(record["file"], record["notebook"], record["axes"], cells)
    except OSError as error:
        raise RecordError(f"The plan {path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"The plan {path} is not that of a sweep: {type(error).__name__} {error}.") from error
    raise RecordError(f"The plan {path} has schema {found!r}, but this version reads {SCHEMA_VERSION}.")


def cell_folder(folder: Path, cell_id: str) -> Path:
    """Where a cell of the sweep in `folder` keeps its files."""
    return folder / CELLS_NAME / cell_id


def plan_of(grid: Grid, *, file: str, folder: Path) -> Plan:
    """The plan of `grid` for the sweep folder `folder`.

    A cell whose folder is already there keeps its name, also when the grid has got another axis since.
    """
    made = [path.name for path in (folder / CELLS_NAME).glob("*") if path.is_dir()]
    known = {name[-DIGEST_LENGTH:]: name for name in made}
    cells = []
    for point in grid.points:
        digest = digest_of(grid.notebook, point.params)
        cell_id = known.get(digest) or f"{_readable(point.axes)}_{digest}"
        values = {name: value for name, value in point.params.to_plain().items() if name not in SET_BY_SWEEP}
        cells.append(Cell(cell_id, {**values, "out_dir": _from_root(cell_folder(folder, cell_id))}))
    return Plan(file, grid.notebook, grid.axes, cells)


def digest_of(notebook: str, params: NotebookParams) -> str:
    """Of everything that a cell's result depends on: not its folder, and not the cores of the machine."""
    values = {name: value for name, value in params.to_plain().items() if name not in SET_BY_SWEEP}
    text = json.dumps([notebook, values], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]


def _readable(axes: Mapping[str, Any]) -> str:
    parts = [f"{name}-{_slug(value)}" for name, value in axes.items()]
    return "_".join(parts)[:LONGEST_NAME]


def _slug(value: Any) -> str:
    text = "-".join(str(entry) for entry in value) if isinstance(value, list) else str(value)
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")[:LONGEST_VALUE]


def _from_root(path: Path) -> str:
    root = project_root()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
