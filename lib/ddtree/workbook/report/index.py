"""List the runs below a folder on one page that sorts and filters offline and links to their reports.

A file that cannot be read makes its run "unreadable"; no run is left out."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ddtree.workbook.records import EXECUTED_NAME, REPORT_NAME, RESULT_NAME, RUN_NAME, RecordError, write_text
from ddtree.workbook.report.html import CONTENT_SECURITY_POLICY, TEMPLATES
from ddtree.workbook.report.key_metrics import KeyMetrics, key_metrics_of
from ddtree.workbook.report.run_info import (
    ExecutedNotebook,
    NotebookError,
    RunRecords,
    duration,
    in_order,
    in_short,
    read_notebook,
    read_records,
)
from ddtree.workbook.sweep.cell import FAILURE_NAME
from ddtree.workbook.sweep.cell import failure_of as failure_of_cell
from ddtree.workbook.sweep.grid import PLAN_NAME, cell_folder, read_plan

INDEX_NAME = "index.html"
STATUSES = ("done", "failed", "unfinished", "unreadable")
NO_COLUMN = {"model", "out_dir"}  # the model has a column already, out_dir is the folder
LONGEST_PARAMETER = 48  # characters of a text parameter in its column

Status = Literal["done", "failed", "unfinished", "unreadable"]


class NoRunsError(ValueError):
    """There is nothing to list."""


@dataclass(frozen=True, slots=True)
class ListedRun:
    """One run as an index shows it; what is not known is empty. `folder` is relative to the indexed one, "." itself."""

    folder: str
    status: Status
    reason: str
    notebook: str = ""
    title: str = ""
    params: dict[str, Any] = field(default_factory=dict)
    key_metrics: KeyMetrics = field(default_factory=KeyMetrics)
    finished: datetime | None = None
    machine: str = ""
    wall_s: float | None = None
    report: str = ""


class Cell(NamedTuple):
    """One entry: its column, how that looks ("text", "number" or "parameter"), lines, what sorts it (None: last)."""

    column: str
    kind: str
    lines: tuple[str, ...]
    sort_by: str | float | None
    link: str = ""
    status: str = ""


def write_index(folder: Path) -> Path:
    """Write FOLDER/index.html over all runs in and below `folder`, and return its path.

    Raises NoRunsError when `folder` is not a folder or has no run in it, RecordError when it cannot be written.
    """
    if not folder.is_dir():
        raise NoRunsError(f"The folder {folder} does not exist; name one that holds runs, as outputs.")
    runs = runs_below(folder)
    if not runs:
        raise NoRunsError(
            f"There is no run in or below {folder}: no folder there has an executed.ipynb or a result.json."
        )
    path = folder / INDEX_NAME
    write_text(path, render_index(folder.resolve().name, runs))
    return path


def render_index(name: str, runs: Sequence[ListedRun]) -> str:
    """The page that lists `runs` under the heading `name`."""
    varied = differing(runs)
    measured = any(run.key_metrics.acceptance for run in runs)
    loader = FileSystemLoader(TEMPLATES)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("index/index.html.j2").render(
        csp=CONTENT_SECURITY_POLICY,
        css=Markup((TEMPLATES / "report/report.css").read_text() + (TEMPLATES / "index/index.css").read_text()),
        js=Markup((TEMPLATES / "index/index.js").read_text()),
        name=name,
        rows=[_cells(run, varied, measured) for run in runs],
        counts=[(status, number) for status in STATUSES if (number := sum(run.status == status for run in runs))],
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


def runs_below(root: Path) -> list[ListedRun]:
    """Every run in and below `root`, the newest first, and every cell of a sweep that was planned and not yet run.

    A run is a folder that holds an executed.ipynb, a run.json, a result.json or a failure.json. Hidden folders are left
    out and links to folders are not followed. Runs without a date come last, by name.
    """
    found: dict[str, ListedRun] = {}
    planned: dict[str, ListedRun] = {}
    for walked, below, files in os.walk(root):
        below[:] = sorted(name for name in below if not name.startswith("."))
        folder = Path(walked)
        where = folder.relative_to(root).as_posix()
        if {EXECUTED_NAME, RUN_NAME, RESULT_NAME, FAILURE_NAME} & set(files):
            found[where] = _listed(folder, root)
        if PLAN_NAME in files:
            planned |= _planned(folder, root)
    for where, cell in planned.items():
        run = found.get(where, cell)
        found[where] = replace(run, notebook=run.notebook or cell.notebook, params=run.params or cell.params)
    by_date = sorted(found.items())
    by_date.sort(key=lambda item: item[1].finished.timestamp() if item[1].finished else 0, reverse=True)
    return [run for _, run in by_date]


def _cells(run: ListedRun, varied: Sequence[str], measured: bool) -> list[Cell]:
    """One row, whose cells have the same columns for each run."""

    def text(column: str, *lines: str) -> Cell:
        return Cell(column, "text", tuple(line for line in lines if line), lines[0])

    metrics, finished = run.key_metrics, run.finished
    when = (f"{finished:%Y-%m-%d}", f"{finished:%H:%M UTC}") if finished else ()
    took = (duration(run.wall_s),) if run.wall_s is not None else ()
    return [
        Cell("run", "text", (run.folder,), run.folder, link=quote(run.report)),
        text("notebook", run.notebook, run.title),
        Cell("status", "text", (run.reason,) if run.reason else (), run.status, status=run.status),
        Cell("result", "number", metrics.lines, metrics.sort_by),
        *([Cell("tokens per round", "number", metrics.acceptance, metrics.best_acceptance)] if measured else []),
        *[_parameter(name, run.params.get(name)) for name in varied],
        text("model", str(run.params.get("model", ""))),
        Cell("when", "number", when, finished.timestamp() if finished else None),
        Cell("wall time", "number", took, run.wall_s),
        text("machine", run.machine),
    ]


def _parameter(name: str, value: Any) -> Cell:
    if value is None:
        return Cell(name, "parameter", (), None)
    text = " ".join(in_short(value, texts=0 if isinstance(value, list) else 1).split())
    text = text if len(text) <= LONGEST_PARAMETER else f"{text[: LONGEST_PARAMETER - 1]}…"
    single = value[0] if isinstance(value, list) and len(value) == 1 else value
    number = isinstance(single, int | float) and not isinstance(single, bool)
    return Cell(name, "parameter", (text,), single if number else text)


def _planned(sweep: Path, root: Path) -> dict[str, ListedRun]:
    """Every cell of the plan by its folder, as if none had run; a plan that cannot be read by its file."""
    path = sweep / PLAN_NAME
    try:
        plan = read_plan(path)
    except RecordError as error:
        where = path.relative_to(root).as_posix()
        return {where: ListedRun(where, "unreadable", str(error).replace(f"The plan {path}", PLAN_NAME))}
    planned = {}
    for cell in plan.cells:
        where = cell_folder(sweep, cell.id).relative_to(root).as_posix()
        planned[where] = ListedRun(where, "unfinished", "planned, not run yet", plan.notebook, params=cell.params)
    return planned


def _listed(folder: Path, root: Path) -> ListedRun:
    problems = []
    executed, noted = None, None
    try:
        noted = failure_of_cell(folder)
    except RecordError as error:
        problems.append(str(error).replace(f"The record {folder / FAILURE_NAME}", FAILURE_NAME))
    path = folder / EXECUTED_NAME
    try:
        executed = read_notebook(path) if path.is_file() else None
    except NotebookError as error:
        problems.append(str(error).replace(f"The notebook {path}", EXECUTED_NAME))
    records = read_records(folder, executed)
    start, result = records.start, records.result
    status, reason = _status(executed, records, noted, [*problems, *records.problems])
    report = folder / REPORT_NAME
    ended = (executed.ended or executed.started) if executed else None
    return ListedRun(
        folder=folder.relative_to(root).as_posix(),
        status=status,
        reason=reason,
        notebook=start.notebook if start else executed.origin if executed else "",
        title=executed.title if executed else "",
        params=start.params if start else {},
        key_metrics=key_metrics_of(result) if result else KeyMetrics(),
        finished=result.finished_utc if result else ended or (start.moment if start else None),
        machine=start.environment.name if start else "",
        wall_s=result.wall_s if result else executed.seconds if executed else None,
        report=report.relative_to(root).as_posix() if report.is_file() else "",
    )


def _status(
    executed: ExecutedNotebook | None, records: RunRecords, noted: str | None, problems: list[str]
) -> tuple[Status, str]:
    if problems:
        return "unreadable", " ".join(problems)
    failure = noted or (executed.failure if executed else "")
    result = records.result
    if result and result.metrics.get("complete") is False:
        count = f"{result.metrics.get('prompts_done', '?')} of {result.metrics.get('prompts_planned', '?')} prompts"
        return "unfinished", failure if count in failure else f"{count}: {failure}" if failure else count
    if failure:
        return "failed", failure
    if result:
        return "done", ""
    if executed is None:
        return "unfinished", f"started, but there is no {RESULT_NAME}: it is still running, or was stopped"
    if executed.cells_run < executed.cells:
        return "unfinished", f"{executed.cells_run} of {executed.cells} cells: it is still running, or was killed"
    return "unfinished", f"all {executed.cells} cells ran, but none wrote {RESULT_NAME}"
