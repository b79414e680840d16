"""The runs below a folder, each with its state; a file that cannot be read makes a run "unreadable", never absent."""

import os
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from nbformat import NotebookNode, v4

from ddtree.workbook.records import RESULT_NAME, RecordError
from ddtree.workbook.report.facts import origin_stem, strangers
from ddtree.workbook.report.fate import cells_run, ended, failure_of, seconds_of
from ddtree.workbook.report.headline import Headline, headline
from ddtree.workbook.report.outline import title
from ddtree.workbook.report.parameters import parameters_of
from ddtree.workbook.report.record import RunRecord, read_record
from ddtree.workbook.run import EXECUTED_NAME, REPORT_NAME
from ddtree.workbook.sweep.outcome import FAILURE_NAME
from ddtree.workbook.sweep.outcome import failure_of as failure_of_cell
from ddtree.workbook.sweep.plan import PLAN_NAME, cell_folder, read_plan

State = Literal["done", "failed", "unfinished", "unreadable"]


@dataclass(frozen=True, slots=True)
class ListedRun:
    """One run as an index shows it; what is not known is empty. `folder` is relative to the indexed one, "." itself."""

    folder: str
    state: State
    reason: str
    notebook: str = ""
    title: str = ""
    params: dict[str, Any] = field(default_factory=dict)
    headline: Headline = field(default_factory=Headline)
    finished: datetime | None = None
    machine: str = ""
    wall_s: float | None = None
    report: str = ""


def runs_below(root: Path) -> list[ListedRun]:
    """Every run in and below `root`, the newest first, and every cell of a sweep that was planned and not yet run.

    A run is a folder that holds an executed.ipynb, a result.json or a failure.json. Hidden folders are left out and
    links to folders are not followed. Runs without a date come last, by name.
    """
    found: dict[str, ListedRun] = {}
    planned: dict[str, ListedRun] = {}
    for walked, below, files in os.walk(root):
        below[:] = sorted(name for name in below if not name.startswith("."))
        folder = Path(walked)
        where = folder.relative_to(root).as_posix()
        if {EXECUTED_NAME, RESULT_NAME, FAILURE_NAME} & set(files):
            found[where] = _listed(folder, root)
        if PLAN_NAME in files:
            planned |= _planned(folder, root)
    for where, cell in planned.items():
        run = found.get(where, cell)
        found[where] = replace(run, notebook=run.notebook or cell.notebook, params=run.params or cell.params)
    by_date = sorted(found.items())
    by_date.sort(key=lambda item: item[1].finished.timestamp() if item[1].finished else 0, reverse=True)
    return [run for _, run in by_date]


def _planned(sweep: Path, root: Path) -> dict[str, ListedRun]:
    """Every cell of the plan by its folder, as if none had run; a plan that cannot be read by its file."""
    path = sweep / PLAN_NAME
    try:
        plan = read_plan(path)
    except RecordError as error:
        where = path.relative_to(root).as_posix()
        return {where: ListedRun(where, "unreadable", str(error).replace(f"The plan {path}", PLAN_NAME))}
    folders = {cell_folder(sweep, cell.id).relative_to(root).as_posix(): cell for cell in plan.cells}
    return {
        where: ListedRun(where, "unfinished", "planned, not run yet", notebook=plan.notebook, params=cell.params)
        for where, cell in folders.items()
    }


def _listed(folder: Path, root: Path) -> ListedRun:
    problems = []
    notebook, record, noted = None, None, None
    try:
        noted = failure_of_cell(folder)
    except RecordError as error:
        problems.append(str(error).replace(f"The record {folder / FAILURE_NAME}", FAILURE_NAME))
    if (folder / EXECUTED_NAME).is_file():
        try:
            notebook = _read_notebook(folder / EXECUTED_NAME)
        except (OSError, ValueError) as error:
            problems.append(str(error))
    if (folder / RESULT_NAME).is_file():
        try:
            record = read_record(folder / RESULT_NAME)
        except RecordError as error:
            problems.append(str(error).replace(f"The result {folder / RESULT_NAME}", RESULT_NAME))
    values = parameters_of(notebook) if notebook else {}
    if record and (other := strangers(values, record)):
        problems.append(f"{RESULT_NAME} is of another run than {EXECUTED_NAME} ({', '.join(other)}).")
        record = None
    state, reason = _state(notebook, record, noted, problems)
    report = folder / REPORT_NAME
    return ListedRun(
        folder=folder.relative_to(root).as_posix(),
        state=state,
        reason=reason,
        notebook=record.notebook if record else origin_stem(notebook) if notebook else "",
        title=(title(notebook) or "") if notebook else "",
        params={**values, **(record.params if record else {})},
        headline=headline(record) if record else Headline(),
        finished=record.finished_utc if record else ended(notebook) if notebook else None,
        machine=record.environment.name if record else "",
        wall_s=record.wall_s if record else seconds_of(notebook) if notebook else None,
        report=report.relative_to(root).as_posix() if report.is_file() else "",
    )


def _read_notebook(path: Path) -> NotebookNode:
    """The notebook, without the validation that makes nbformat slow. Raises OSError or ValueError, a sentence."""
    try:
        notebook = v4.reads(path.read_text(encoding="utf-8"))
        for read in (title, failure_of, cells_run, ended, seconds_of, parameters_of, origin_stem):
            read(notebook)
    except OSError as error:
        raise OSError(f"{path.name} cannot be read: {error.strerror}.") from error
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{path.name} is no executed notebook ({type(error).__name__}: {error}).") from error
    return notebook


def _state(
    notebook: NotebookNode | None, record: RunRecord | None, noted: str | None, problems: list[str]
) -> tuple[State, str]:
    if problems:
        return "unreadable", " ".join(problems)
    failure = noted or (failure_of(notebook).reason if notebook else "")
    if record and record.metrics.get("complete") is False:
        count = f"{record.metrics.get('prompts_done', '?')} of {record.metrics.get('prompts_planned', '?')} prompts"
        return "unfinished", failure if count in failure else f"{count}: {failure}" if failure else count
    if failure:
        return "failed", failure
    if record:
        return "done", ""
    done, planned = cells_run(notebook) if notebook else (0, 0)
    if done < planned:
        return "unfinished", f"{done} of {planned} cells: it still runs, or was killed"
    return "unfinished", f"all {planned} cells ran, but none wrote {RESULT_NAME}"
