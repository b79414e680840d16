"""A sweep file: which notebook runs over which values; a Grid has passed every check of every cell."""

import difflib
import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddtree.workbook.parameter_problems import type_word
from ddtree.workbook.params import PARAMS, NotebookParams, ParameterError
from ddtree.workbook.plain_yaml import YamlError, load_mapping

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


def text_of(axes: Mapping[str, Any]) -> str:
    """A cell in words: `temperatures 0.6, budget 16`."""
    return ", ".join(f"{name} {value}" for name, value in axes.items())


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
                wrong.setdefault(sentence, []).append(text_of(point))
    more = {sentence: f" (and {len(cells) - 1} more)" if len(cells) > 1 else "" for sentence, cells in wrong.items()}
    return points, [f"the cell {cells[0]}{more[sentence]}: {sentence}" for sentence, cells in wrong.items()]


def _wrong(model: type[NotebookParams], values: Mapping[str, Any]) -> list[str]:
    try:
        model.from_mapping(dict(values))
    except ParameterError as error:
        return error.problems
    return []
