"""Many runs on one page: a table that sorts and filters without a network, and links to the reports beside it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ddtree.workbook.records import write_text
from ddtree.workbook.report.export import TEMPLATES
from ddtree.workbook.report.fate import duration
from ddtree.workbook.report.offline import CONTENT_SECURITY_POLICY
from ddtree.workbook.report.parameters import in_order, in_short
from ddtree.workbook.report.runs import ListedRun, runs_below

INDEX_NAME = "index.html"
NO_COLUMN = {"model", "out_dir"}  # the one has a column of its own, the other is the folder
STATES = ("done", "failed", "unfinished", "unreadable")
LONGEST_TEXT = 48  # characters of a text parameter in its column


class NoRunsError(ValueError):
    """There is nothing to list."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One entry: lines of text, and what its column is sorted by (empty text: last)."""

    lines: tuple[str, ...]
    sort_by: str | float
    link: str = ""
    state: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and how its cells look: "text", "number", or "parameter"."""

    name: str
    kind: str


def write_index(folder: Path) -> Path:
    """Write FOLDER/index.html over all runs in and below `folder`, and return its path.

    Raises NoRunsError when `folder` is none or holds no run, RecordError when it cannot be written.
    """
    if not folder.is_dir():
        raise NoRunsError(f"The folder {folder} does not exist; name one that holds runs, as outputs.")
    runs = runs_below(folder)
    if not runs:
        raise NoRunsError(
            f"No run lies in or below {folder}: no folder there holds an executed.ipynb or a result.json."
        )
    path = folder / INDEX_NAME
    write_text(path, render_index(folder.resolve().name, runs))
    return path


def render_index(name: str, runs: Sequence[ListedRun]) -> str:
    """The page that lists `runs` under the heading `name`."""
    varied = differing(runs)
    measured = any(run.headline.acceptance for run in runs)
    columns = [
        Column("run", "text"),
        Column("notebook", "text"),
        Column("state", "text"),
        Column("result", "number"),
        *([Column("tokens per round", "number")] if measured else []),
        *[Column(parameter, "parameter") for parameter in varied],
        Column("model", "text"),
        Column("when", "number"),
        Column("wall time", "number"),
        Column("machine", "text"),
    ]
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("index/index.html.j2").render(
        csp=CONTENT_SECURITY_POLICY,
        css=Markup((TEMPLATES / "report/report.css").read_text() + (TEMPLATES / "index/index.css").read_text()),
        js=Markup((TEMPLATES / "index/index.js").read_text()),
        name=name,
        columns=columns,
        rows=[_cells(run, varied, measured) for run in runs],
        counts=[(state, number) for state in STATES if (number := sum(run.state == state for run in runs))],
    )


def differing(runs: Sequence[ListedRun]) -> list[str]:
    """Parameters that differ between runs of the same notebook, in the notebooks' order."""
    names: dict[str, None] = {}
    for notebook in sorted({run.notebook for run in runs}):
        own = [run.params for run in runs if run.notebook == notebook]
        everything = {name: value for params in own for name, value in params.items()}
        for name in in_order(notebook, everything):
            written = {json.dumps(params[name], default=str) for params in own if name in params}
            if len(written) > 1 and name not in NO_COLUMN:
                names[name] = None
    return list(names)


def _cells(run: ListedRun, varied: list[str], measured: bool) -> list[Cell]:
    result = run.headline
    model = str(run.params.get("model", ""))
    finished = run.finished
    when = (finished.strftime("%Y-%m-%d"), finished.strftime("%H:%M UTC")) if finished else ()
    return [
        Cell((run.folder,), run.folder, link=quote(run.report)),
        Cell(tuple(text for text in (run.notebook, run.title) if text), run.notebook),
        Cell((run.reason,) if run.reason else (), run.state, state=run.state),
        Cell(result.lines, _sorted_by(result.sort_by)),
        *([Cell(result.acceptance, _sorted_by(result.best_acceptance))] if measured else []),
        *[_parameter(run.params.get(name)) for name in varied],
        Cell((model,) if model else (), model),
        Cell(when, finished.timestamp() if finished else ""),
        Cell((duration(run.wall_s),) if run.wall_s is not None else (), _sorted_by(run.wall_s)),
        Cell((run.machine,) if run.machine else (), run.machine),
    ]


def _sorted_by(number: float | None) -> str | float:
    return "" if number is None else number


def _parameter(value: Any) -> Cell:
    if value is None:
        return Cell((), "")
    text = " ".join(in_short(value, texts=0 if isinstance(value, list) else 1).split())
    text = text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"
    alone = value[0] if isinstance(value, list) and len(value) == 1 else value
    number = isinstance(alone, int | float) and not isinstance(alone, bool)
    return Cell((text,), alone if number else text)
