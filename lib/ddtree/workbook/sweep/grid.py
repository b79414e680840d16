"""Read a sweep file, check every cell of its grid, and write the plan: equal parameters give equal cell names."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import hashlib
import itertools
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddtree.workbook.params import PARAMS, NotebookParams, ParameterError
from ddtree.workbook.params_validation import YamlError, load_mapping, type_word
from ddtree.workbook.paths import project_root
from ddtree.workbook.records import RecordError, write_text

KEYS = ("notebook", "fixed", "grid", "max_cells")
DEFAULT_NOTEBOOK = "03_live"
MAX_CELLS = 100  # that a file may ask for without saying how many
SET_BY_SWEEP = {
    "threads": "the sweep shares the cores among its jobs",
    "out_dir": "each cell has its own folder",
}


class SweepFileError(ValueError):
    """One or more things in a sweep file are wrong; the message has one sentence for each."""

    def __init__(self, file: str | Path, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join([f"{file}: {len(problems)} problem(s); nothing was started.", *problems]))


@dataclass(frozen=True, slots=True)
class Point:
    """One cell of a grid: its value on each axis, and the checked parameters that it stands for."""

    axes: dict[str, Any]
    params: NotebookParams


@dataclass(frozen=True, slots=True)
class Grid:
    """A checked sweep file. `axes` holds the values as the file gives them, `points` their product in that order."""

    notebook: str
    axes: dict[str, list[Any]]
    points: list[Point]


def read_grid(path: str | Path) -> Grid:
    """The grid of the sweep file `path`. Raises SweepFileError with every problem at once."""
    try:
        content = load_mapping(path)
    except YamlError as error:
        raise SweepFileError(path, [str(error)]) from error
    problems = [_unknown_key(key) for key in content if key not in KEYS]
    notebook = content.get("notebook", DEFAULT_NOTEBOOK)
    if not isinstance(notebook, str) or notebook not in PARAMS:
        wrong = f"notebook is {notebook!r}, which has no checked parameters; the notebooks are {', '.join(PARAMS)}."
        raise SweepFileError(path, [*problems, wrong])
    model = PARAMS[notebook]
    fixed, wrong_fixed = _fixed(content.get("fixed", {}), model)
    axes, wrong_axes = _axes(content.get("grid"), fixed, model)
    problems += [*wrong_fixed, *wrong_axes, *_size_problems(axes, content.get("max_cells", MAX_CELLS))]
    if problems:
        raise SweepFileError(path, problems)
    points, problems = _points(axes, fixed, model)
    if problems:
        raise SweepFileError(path, problems)
    return Grid(notebook, axes, points)


@functools.cache
def list_valued(model: type[NotebookParams]) -> frozenset[str]:
    """The parameters that are lists: on an axis of theirs a single value stands for a list of it alone."""
    schemas = model.model_json_schema()["properties"]
    return frozenset(name for name, schema in schemas.items() if schema.get("type") == "array")


def _unknown_key(key: str) -> str:
    near = difflib.get_close_matches(key, KEYS, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"a sweep file has {', '.join(KEYS)}."
    return f"unknown key '{key}'; {hint}"


def _fixed(found: Any, model: type[NotebookParams]) -> tuple[dict[str, Any], list[str]]:
    if not isinstance(found, dict):
        return {}, [f"fixed is {found!r} ({type_word(found)}), but a mapping of parameters to values is needed."]
    reserved = [_reserved("fixed", name) for name in found if name in SET_BY_SWEEP]
    values = {name: value for name, value in found.items() if name not in SET_BY_SWEEP}
    return values, [*reserved, *(f"fixed: {sentence}" for sentence in _wrong(model, values))]


def _axes(found: Any, fixed: Mapping[str, Any], model: type[NotebookParams]) -> tuple[dict[str, list[Any]], list[str]]:
    if not isinstance(found, dict) or not found:
        given = "missing" if found is None else f"{found!r} ({type_word(found)})"
        return {}, [
            f"grid is {given}, but a mapping of parameters to lists of values is needed, as in budget: [4, 16]."
        ]
    problems: list[str] = []
    for name, values in found.items():
        problems += _axis_problems(name, values, model)
        if name in fixed:
            problems.append(f"{name} is under fixed and under grid; it can be one of them only.")
    return {name: values for name, values in found.items() if isinstance(values, list)}, problems


def _axis_problems(name: str, values: Any, model: type[NotebookParams]) -> list[str]:
    if name in SET_BY_SWEEP:
        return [_reserved("grid", name)]
    if not isinstance(values, list):
        return [
            f"grid: {name} is {values!r} ({type_word(values)}), but a list of values is needed; "
            "one value for every cell belongs under fixed."
        ]
    if not values:
        return [f"grid: {name} has no values; give at least one, or leave the axis out."]
    meant = [as_parameter(model, name, value) for value in values]
    repeated = [value for index, value in enumerate(values) if meant[index] in meant[:index]]
    doubles = [f"grid: {name} holds {value!r} more than once; each value may stand once only." for value in repeated]
    sentences = dict.fromkeys(sentence for value in meant for sentence in _wrong(model, {name: value}))
    return [*doubles, *(f"grid: {sentence}" for sentence in sentences)]


def as_parameter(model: type[NotebookParams], name: str, value: Any) -> Any:
    """What a value on an axis is for the notebook: on an axis of lists a single value is a list of it alone."""
    return [value] if name in list_valued(model) and not isinstance(value, list) else value


def _reserved(where: str, name: str) -> str:
    return f"{where}: {name} cannot be given, because {SET_BY_SWEEP[name]}."


def _size_problems(axes: Mapping[str, list[Any]], most: Any) -> list[str]:
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        return [f"max_cells is {most!r} ({type_word(most)}), but a whole number from 1 is needed."]
    count = math.prod(len(values) for values in axes.values())
    if count <= most:
        return []
    sizes = " x ".join(f"{len(values)} {name}" for name, values in axes.items())
    return [f"the grid has {count} cells ({sizes}), more than {most}; write max_cells: {count} if that is meant."]


def _points(
    axes: Mapping[str, list[Any]], fixed: Mapping[str, Any], model: type[NotebookParams]
) -> tuple[list[Point], list[str]]:
    """Every cell through the model as a whole: some rules bind several parameters."""
    points: list[Point] = []
    wrong: dict[str, list[str]] = {}
    for values in itertools.product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        given = {**fixed, **{name: as_parameter(model, name, value) for name, value in point.items()}}
        try:
            points.append(Point(point, model.from_mapping(given)))
        except ParameterError as error:
            for sentence in error.problems:
                cell = ", ".join(f"{name} {value}" for name, value in point.items())  # temperatures 0.6, budget 16
                wrong.setdefault(sentence, []).append(cell)
    more = {sentence: f" (and {len(cells) - 1} more)" if len(cells) > 1 else "" for sentence, cells in wrong.items()}
    return points, [f"the cell {cells[0]}{more[sentence]}: {sentence}" for sentence, cells in wrong.items()]


def _wrong(model: type[NotebookParams], values: Mapping[str, Any]) -> list[str]:
    try:
        model.from_mapping(dict(values))
    except ParameterError as error:
        return error.problems
    return []


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
        return {cell.id: cell for cell in self.cells}[cell_id]

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
        cells.append(Cell(cell_id, {**values, "out_dir": from_root(cell_folder(folder, cell_id))}))
    return Plan(file, grid.notebook, grid.axes, cells)


def digest_of(notebook: str, params: NotebookParams) -> str:
    """Of everything that a cell's result depends on: not its folder, and not the cores of the machine."""
    values = {name: value for name, value in params.to_plain().items() if name not in SET_BY_SWEEP}
    text = json.dumps([notebook, values], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]


def _readable(axes: Mapping[str, Any]) -> str:
    return "_".join(f"{name}-{_slug(value)}" for name, value in axes.items())[:LONGEST_NAME]


def _slug(value: Any) -> str:
    text = "-".join(str(entry) for entry in value) if isinstance(value, list) else str(value)
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")[:LONGEST_VALUE]


def from_root(path: Path) -> str:
    """`path` as parameters hold it: relative to the project root if it is under it."""
    root = project_root()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
