"""Collect what a report and an index say of a run: its records, parameters, machine, and how its notebook ended."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

from nbformat import NotebookNode, v4
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ddtree.workbook.params import PARAMS
from ddtree.workbook.records import EXECUTED_NAME, RESULT_NAME, RUN_NAME, RecordError, read_result

ALWAYS_OPEN = ("model",)
NEVER_OPEN = ("out_dir",)  # where the files are says nothing of what was run
TEXTS_SHOWN = 2
VERSIONS_ON_TOP = ("ddtree", "torch", "transformers", "sglang")
HEADING = re.compile(r"\A\s*#\s+(?P<title>[^\n]+)\n*")
PAPERMILL_MARK = "papermill-error-cell-tag"


def in_utc(moment: datetime) -> datetime:
    """`moment` with the time zone UTC; one without a zone is taken for UTC."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


Moment = Annotated[datetime, AfterValidator(in_utc)]


class Machine(BaseModel):
    """What a run ran on."""

    model_config = ConfigDict(frozen=True)

    python: str
    platform: str
    cpu: str
    physical_cores: int | None
    memory_gib: float
    torch_threads: int | None
    gpu: str | None
    packages: dict[str, str | None]

    @property
    def name(self) -> str:
        """The GPU if one was used, else processor and cores."""
        return self.gpu or f"{self.cpu}, {self.physical_cores or 'unknown'} cores"


class RunStart(BaseModel):
    """What is known at the start of a run: one run.json. Fields of later versions are ignored."""

    model_config = ConfigDict(frozen=True)

    notebook: str
    environment: Machine
    params: dict[str, Any]
    started_utc: Moment | None = None
    seed: int | None = None
    git_revision: str | None = None

    @property
    def moment(self) -> datetime | None:
        """A moment within the run, None if unknown."""
        return self.started_utc

    @property
    def revision(self) -> str:
        """The commit in short, "" outside git."""
        commit, _, dirty = (self.git_revision or "").partition("-")
        return commit[:10] + (" with local changes" if dirty else "")


class RunRecord(RunStart):
    """One result.json, which repeats what is known at the start; `wall_s` is in seconds."""

    finished_utc: Moment
    wall_s: float = Field(ge=0, allow_inf_nan=False)
    metrics: dict[str, Any]
    peak_rss_mib: float | None = None

    @property
    def moment(self) -> datetime:
        return self.started_utc or self.finished_utc


class RunRecords(NamedTuple):
    """The records of one run, None where there is none, and a sentence for each file that cannot be used."""

    start: RunStart | None
    result: RunRecord | None
    problems: tuple[str, ...]


Record = TypeVar("Record", bound=RunStart)


def read_record(path: Path, form: type[Record]) -> Record:
    """The record in the file `path`. Raises RecordError, which names the file and every field that is wrong."""
    try:
        return form.model_validate(read_result(path))
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg'].lower()}" for e in error.errors())
        raise RecordError(f"The record {path} is not of a ddtree run ({wrong}).") from error


def read_records(folder: Path, executed: ExecutedNotebook | None) -> RunRecords:
    """The records in `folder` of the run that `executed` holds; those of another run in the same folder are problems.

    A result.json without a run.json next to it is used for both: records made before run.json existed
    (docs/h200/*.json) and those of programs without a notebook have parameters, machine and revision only there.
    """
    problems: list[str] = []

    def read(path: Path, form: type[Record]) -> Record | None:
        try:
            return read_record(path, form) if path.is_file() else None
        except RecordError as error:
            problems.append(str(error).replace(f"The record {path}", path.name))
            return None

    start = read(folder / RUN_NAME, RunStart)
    result = read(folder / RESULT_NAME, RunRecord)
    if start and result and result.started_utc != start.started_utc:
        problems.append(f"{RESULT_NAME} is of another run than {RUN_NAME}, which started at {start.started_utc}.")
        result = None
    name = RUN_NAME if start else RESULT_NAME
    start = start or result
    if start and executed and not executed.covers(start.moment):
        problems.append(
            f"{name} is of another run than {EXECUTED_NAME}, which papermill started at {executed.started}."
        )
        start = result = None
    return RunRecords(start, result, tuple(problems))


class NotebookError(ValueError):
    """The notebook cannot be read."""


@dataclass(frozen=True, slots=True)
class ExecutedNotebook:
    """A notebook with its outputs, and what they and papermill's metadata say of the run.

    `title` is the first heading of the first level, "" without one; `origin` the name of the notebook that papermill
    executed. `started`, `ended` and `seconds` are papermill's, None for a notebook run otherwise. `failure` is "" for a
    run that did not fail; `failure_shown` says whether a cell shows it. `cells_run` of `cells` code cells ran.
    """

    node: NotebookNode
    title: str
    origin: str
    failure: str
    failure_shown: bool
    cells_run: int
    cells: int
    started: datetime | None
    ended: datetime | None
    seconds: float | None

    def covers(self, moment: datetime | None) -> bool:
        """Whether `moment` lies between papermill's start and end; True where one of them is unknown."""
        if moment is None:
            return True
        early = self.started is not None and moment < self.started.replace(microsecond=0)  # records have whole seconds
        return not early and (self.ended is None or moment <= self.ended)


def read_notebook(path: Path) -> ExecutedNotebook:
    """The executed notebook in `path`, without the validation that makes nbformat slow. Raises NotebookError."""
    try:
        return executed_notebook(v4.reads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise NotebookError(f"The notebook {path} cannot be read: {error.strerror}.") from error
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        reason = f"it is not an executed notebook ({type(error).__name__}: {error})"
        raise NotebookError(f"The notebook {path} cannot be read: {reason}.") from error


def executed_notebook(node: NotebookNode) -> ExecutedNotebook:
    """What `node` says of its run. A dead kernel leaves no error in a cell; then `ddtree run` has noted the failure."""
    papermill = node.metadata.get("papermill", {})
    code = [cell for cell in node.cells if cell.cell_type == "code" and cell.source.strip()]
    errors = [output for cell in code for output in cell.get("outputs", []) if output.output_type == "error"]
    raised = [f"{error.ename}: {error.evalue}".strip().removesuffix(":").removesuffix(".") for error in errors]
    headings = [
        found["title"].strip().replace("`", "")
        for cell in node.cells
        if cell.cell_type == "markdown" and PAPERMILL_MARK not in tags(cell) and (found := HEADING.match(cell.source))
    ]

    def moment(name: str) -> datetime | None:
        return in_utc(datetime.fromisoformat(papermill[name])) if papermill.get(name) else None

    return ExecutedNotebook(
        node=node,
        title=headings[0] if headings else "",
        origin=Path(papermill.get("input_path") or "").stem,
        failure=raised[0] if raised else node.metadata.get("ddtree", {}).get("failure", ""),
        failure_shown=bool(raised),
        cells_run=sum(cell.get("execution_count") is not None for cell in code),
        cells=len(code),
        started=moment("start_time"),
        ended=moment("end_time"),
        seconds=float(papermill["duration"]) if papermill.get("duration") else None,
    )


def tags(cell: NotebookNode) -> list[str]:
    """The tags of a cell."""
    found: list[str] = cell.get("metadata", {}).get("tags", [])
    return found


class Row(NamedTuple):
    """One line of a table of facts."""

    name: str
    value: str
    meaning: str = ""


def run_facts(executed: ExecutedNotebook, path: Path) -> dict[str, Any]:
    """What the template shows of the run that `executed`, read from `path`, holds; its records are next to it.

    A run whose parameters were wrong has no records, so its report shows only the problems that its cell raised.
    """
    records = read_records(path.parent, executed)
    start = records.start
    stem = start.notebook if start else executed.origin or path.stem
    values = start.params if start else {}
    defaults = PARAMS[stem].defaults() if stem in PARAMS else {}
    return {
        "title": executed.title or stem,
        "kind": f"ddtree · {stem}",
        "facts": _facts_line(executed, records),
        "chosen": _open_rows(stem, values, defaults),
        "rest_is_default": set(values) == set(defaults),
        "parameters": _all_rows(stem, values),
        "machine": _machine_rows(start, records.result) if start else [],
        "failure": executed.failure,
        "failure_shown": executed.failure_shown,
        "note": " ".join([*records.problems, "Nothing of it is shown."]) if records.problems else "",
        "origin": f"{stem}.ipynb",
    }


def in_order(stem: str, values: Mapping[str, Any]) -> list[str]:
    """The names of `values`: first those that the notebook's parameters know, in their order."""
    known = [name for name in PARAMS[stem].model_fields if name in values] if stem in PARAMS else []
    return known + [name for name in values if name not in known]


def _open_rows(stem: str, values: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[Row]:
    """What a reader needs first: the model, and every value that differs from its default, with that default."""
    rows = []
    for name in in_order(stem, values):
        if name in defaults and values[name] != defaults[name] and name not in NEVER_OPEN:
            rows.append(Row(name, in_short(values[name]), f"default {in_short(defaults[name], texts=0)}"))
        elif name in ALWAYS_OPEN:
            rows.append(Row(name, in_short(values[name])))
    return rows


def _all_rows(stem: str, values: Mapping[str, Any]) -> list[Row]:
    """Every parameter in full, with its meaning where the notebook's parameters have one."""
    fields = PARAMS[stem].model_fields if stem in PARAMS else {}
    meanings = {name: field.description or "" for name, field in fields.items()}
    return [Row(name, _in_full(values[name]), meanings.get(name, "")) for name in in_order(stem, values)]


def _in_full(value: Any) -> str:
    """A value as text: a list of texts has one line for each, other lists are one line."""
    if _are_texts(value):
        return "\n".join(f"· {entry}" for entry in value)
    return (", ".join(map(str, value)) or "none") if isinstance(value, list) else str(value)


def in_short(value: Any, *, texts: int = TEXTS_SHOWN) -> str:
    """A value as text: of a list of texts only the first `texts`, one a line, and how many there are."""
    if not _are_texts(value) or len(value) <= texts:
        return _in_full(value)
    if not texts:
        return f"{len(value)} text" + ("s" if len(value) > 1 else "")
    return _in_full(value[:texts]) + f"\nand {len(value) - texts} more"


def duration(seconds: float) -> str:
    """Seconds in words: "0.42 s", "42 s", "3 min 5 s", "2 h 7 min"."""
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(entry, str) for entry in value)


def _facts_line(executed: ExecutedNotebook, records: RunRecords) -> list[str]:
    start, result = records.start, records.result
    finished = result.finished_utc if result else executed.ended or executed.started
    seconds = result.wall_s if result else executed.seconds
    facts = [finished.strftime("%-d %B %Y, %H:%M UTC")] if finished else []
    facts += [f"took {duration(seconds)}"] if seconds else []
    if start:
        packages = start.environment.packages
        facts += [
            start.environment.name,
            f"seed {start.seed}" if start.seed is not None else "",
            f"revision {start.revision}" if start.revision else "",
            ", ".join(f"{name} {packages[name]}" for name in VERSIONS_ON_TOP if packages.get(name)),
        ]
    return [fact for fact in facts if fact]


def _machine_rows(start: RunStart, result: RunRecord | None) -> list[Row]:
    machine = start.environment
    peak = result.peak_rss_mib if result else None
    facts = {
        "CPU": f"{machine.cpu}, {machine.physical_cores or 'unknown'} physical cores",
        "memory": f"{machine.memory_gib} GiB",
        "GPU": machine.gpu or "not used",
        "torch threads": str(machine.torch_threads or "torch was not loaded"),
        "peak memory": "unknown" if peak is None else f"{peak} MiB",
        "platform": machine.platform,
        "revision": start.git_revision or "not in a git repository",
        "python": machine.python,
    }
    return [Row(name, value) for name, value in (facts | machine.packages).items() if value]
