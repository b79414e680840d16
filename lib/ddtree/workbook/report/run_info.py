"""What a report shows of a run: title, parameters, machine, visible cells and how the run ended."""

import ast
import copy
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape, unescape
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup
from nbformat import NotebookNode
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ddtree.workbook.params import PARAMS
from ddtree.workbook.records import RESULT_NAME, RecordError, read_result


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


class RunRecord(BaseModel):
    """One result.json. `finished_utc` has a time zone, `wall_s` is in seconds; fields of later versions are ignored."""

    model_config = ConfigDict(frozen=True)

    notebook: str
    finished_utc: datetime
    wall_s: float = Field(ge=0, allow_inf_nan=False)
    environment: Machine
    params: dict[str, Any]
    metrics: dict[str, Any]
    seed: int | None = None
    peak_rss_mib: float | None = None
    git_revision: str | None = None

    @property
    def revision(self) -> str:
        """The commit in short, "" outside git."""
        commit, _, dirty = (self.git_revision or "").partition("-")
        return commit[:10] + (" with local changes" if dirty else "")


def read_record(path: Path) -> RunRecord:
    """The record in the file `path`. Raises RecordError, which names the file and every field that is wrong."""
    try:
        record = RunRecord.model_validate(read_result(path))
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg'].lower()}" for e in error.errors())
        raise RecordError(f"The result {path} is not of a ddtree run ({wrong}).") from error
    return record.model_copy(update={"finished_utc": in_utc(record.finished_utc)})


def in_utc(moment: datetime) -> datetime:
    """`moment` with the time zone UTC; one without a zone is taken for UTC."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


ALWAYS_OPEN = ("model",)
NEVER_OPEN = ("out_dir",)  # where the files lie says nothing of what was run
TEXTS_SHOWN = 2


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table of facts."""

    name: str
    value: str
    meaning: str = ""


def parameters_of(notebook: NotebookNode) -> dict[str, Any]:
    """Names to values of the parameters cell, overridden by the injected one; only values written out count."""
    return defaults_of(notebook) | _values_of(notebook, "injected-parameters")


def defaults_of(notebook: NotebookNode) -> dict[str, Any]:
    """Names to values of the notebook's own parameters cell, which a run's values override."""
    return _values_of(notebook, "parameters")


def in_order(stem: str, values: Mapping[str, Any]) -> list[str]:
    """The names of `values`: first those that the notebook's parameters know, in their order."""
    model = PARAMS.get(stem)
    known = [name for name in model.model_fields if name in values] if model else []
    return known + [name for name in values if name not in known]


def open_rows(stem: str, values: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[Row]:
    """What a reader needs first: the model, and every value that is no default, with that default."""
    rows = []
    for name in in_order(stem, values):
        changed = name in defaults and values[name] != defaults[name] and name not in NEVER_OPEN
        if changed:
            rows.append(Row(name, in_short(values[name]), f"default {in_short(defaults[name], texts=0)}"))
        elif name in ALWAYS_OPEN:
            rows.append(Row(name, in_short(values[name])))
    return rows


def all_rows(stem: str, values: Mapping[str, Any]) -> list[Row]:
    """Every parameter in full, with its meaning where the notebook's parameters have one."""
    model = PARAMS.get(stem)
    meanings = {name: model.schema_of(name)["description"] for name in model.model_fields} if model else {}
    return [Row(name, in_full(values[name]), meanings.get(name, "")) for name in in_order(stem, values)]


def in_full(value: Any) -> str:
    """A value as text: a list of texts is one line each, other lists stand in one line."""
    if _are_texts(value):
        return "\n".join(f"· {entry}" for entry in value)
    if isinstance(value, list):
        return ", ".join(str(entry) for entry in value) or "none"
    return str(value)


def in_short(value: Any, *, texts: int = TEXTS_SHOWN) -> str:
    """As `in_full`, but of a list of texts only the first `texts` and how many there are."""
    if not _are_texts(value) or 0 < len(value) <= texts:
        return in_full(value)
    if not texts:
        return f"{len(value)} text" + ("s" if len(value) > 1 else "")
    return in_full(value[:texts]) + f"\nand {len(value) - texts} more"


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(entry, str) for entry in value)


def _values_of(notebook: NotebookNode, tag: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for cell in notebook.cells:
        if tag in tags(cell):
            values |= _literals(cell.source)
    return values


def _literals(source: str) -> dict[str, Any]:
    try:
        statements = ast.parse(source).body
    except SyntaxError:  # the report shows the error that the cell raised
        return {}
    values = {}
    for statement in statements:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, value = statement.targets[0], statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            target, value = statement.target, statement.value
        else:
            continue
        if isinstance(target, ast.Name):
            try:
                values[target.id] = ast.literal_eval(value)
            except ValueError:
                values[target.id] = ast.unparse(value)
    return values


HEADING = re.compile(r"\A\s*#\s+(?P<title>[^\n]+)\n*")
SCRIPTED = ("application/vnd.jupyter.widget-view+json", "application/javascript")
ABSENT = '<p class="absent">A live control stood here; it has no still picture in this notebook.</p>'
PAPERMILL_MARK = "papermill-error-cell-tag"


def tags(cell: NotebookNode) -> list[str]:
    """The tags of a cell."""
    found: list[str] = cell.get("metadata", {}).get("tags", [])
    return found


def title(notebook: NotebookNode) -> str | None:
    """The first heading of the first level, or None."""
    for cell in notebook.cells:
        found = HEADING.match(cell.source) if cell.cell_type == "markdown" else None
        if found and PAPERMILL_MARK not in tags(cell):
            return found["title"].strip().replace("`", "")
    return None


def has_figures(notebook: NotebookNode) -> bool:
    """Whether any output is a plotly figure."""
    return any(PLOTLY in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", []))


def body_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Copies of the cells to show.

    The parameters stand in the header, so neither the defaults nor the injected cell is shown; nor are
    papermill's own marks of a failure and the title. Stream pieces of one cell are joined.
    """
    cells: list[NotebookNode] = []
    titled = False
    for cell in notebook.cells:
        if {"parameters", "injected-parameters", PAPERMILL_MARK} & set(tags(cell)):
            continue
        cell = copy.deepcopy(cell)
        if cell.cell_type == "markdown" and not titled and HEADING.match(cell.source):
            titled = True
            cell.source = HEADING.sub("", cell.source)
        if cell.cell_type == "code":
            cell.outputs = [_still(output) for output in _joined(cell.outputs)]
        if cell.source.strip() or cell.get("outputs"):
            cells.append(cell)
    return cells


def _still(output: NotebookNode) -> NotebookNode:
    """The output without what only a running kernel or a script could show; a sentence where nothing is left."""
    forms = output.get("data", {})
    if not any(form in forms for form in SCRIPTED):
        return output
    rest = {form: content for form, content in forms.items() if form not in SCRIPTED and form != "text/plain"}
    output.data = NotebookNode(rest or {"text/html": ABSENT})
    return output


def _joined(outputs: list[NotebookNode]) -> list[NotebookNode]:
    joined: list[NotebookNode] = []
    for output in outputs:
        previous = joined[-1] if joined else None
        if previous and output.output_type == previous.output_type == "stream" and output.name == previous.name:
            previous.text += output.text
        else:
            joined.append(output)
    for output in joined:
        if output.output_type == "stream":
            output.text = last_states(output.text)
    return joined


def last_states(text: str) -> str:
    """What a terminal would show: of a line that carriage returns rewrote, the last state that is not empty."""
    lines = [[state for state in line.split("\r") if state.strip()] for line in text.split("\n")]
    return "\n".join(states[-1] if states else "" for states in lines)


PLOTLY = "application/vnd.plotly.v1+json"
DEFAULT_HEIGHT = 450  # pixels, plotly's own
COLUMN_WIDTH = 300  # pixels that one of several plots side by side needs to be read on a phone
TITLE_ROOM, TITLE_LINE, SUBTITLE_LINE = 68, 20, 16  # pixels of the top margin that a title took, and further lines
TAGS = re.compile(r"(</?(?:b|i|em|strong|sub|sup)>|<br\s*/?>)")  # those of plotly that a caption keeps


class FigureView(NamedTuple):
    """Title as plain text, caption as HTML, height and least width in pixels, the figure as JSON safe in a script."""

    title: str
    caption: Markup
    height: int
    min_width: int
    json: Markup


def figure_view(figure: dict[str, Any]) -> FigureView:
    """The view of a figure in plotly's JSON form; `figure` itself stays as it was."""
    layout = dict(figure.get("layout", {}))
    title = layout.pop("title", None) or {}
    title = {"text": title} if isinstance(title, str) else title
    subtitle = (title.get("subtitle") or {}).get("text")
    if title.get("text"):
        margin = layout.get("margin", {})
        top = _top_margin(layout, title["text"], subtitle or "")
        if "height" in layout and "t" in margin:  # the plot area keeps its height
            layout["height"] -= max(0, margin["t"] - top)
        layout["margin"] = {**margin, "t": top}
    view = {"data": figure["data"], "layout": layout, **({"frames": figure["frames"]} if "frames" in figure else {})}
    return FigureView(
        title=_plain(title.get("text") or ""),
        caption=_caption(title.get("text"), subtitle),
        height=int(layout.get("height") or DEFAULT_HEIGHT),
        min_width=_min_width(layout),
        json=Markup(json.dumps(view, separators=(",", ":")).replace("<", "\\u003c")),  # no </script> inside
    )


def _caption(text: str | None, subtitle: str | None) -> Markup:
    if not text:
        return Markup()
    small = f"<small>{_inline_html(subtitle)}</small>" if subtitle else ""
    return Markup(_inline_html(text) + small)


def _inline_html(text: str) -> str:
    """Plotly's text as HTML: its tags stay, its entities are the characters that plotly would show."""
    pieces = TAGS.split(text)  # texts and tags in turn
    return "".join(piece if i % 2 else escape(unescape(piece), quote=False) for i, piece in enumerate(pieces))


def _plain(text: str) -> str:
    return " ".join(unescape(TAGS.sub(" ", text)).split())


def _top_margin(layout: dict[str, Any], title: str, subtitle: str) -> int:
    labelled = layout.get("annotations") or layout.get("updatemenus")
    least = 40 if labelled else 16
    given = layout.get("margin", {}).get("t")
    taken = TITLE_ROOM + TITLE_LINE * title.count("<br>") + SUBTITLE_LINE * subtitle.count("<br>")
    return least if given is None else max(least, int(given) - taken)


def _min_width(layout: dict[str, Any]) -> int:
    starts = {
        next(iter(axis["domain"]))
        for name, axis in layout.items()
        if name.startswith("xaxis") and isinstance(axis, dict) and "domain" in axis
    }
    if len(starts) > 1:
        return COLUMN_WIDTH * len(starts)
    return int(layout.get("width") or 0)


VERSIONS_ON_TOP = ("ddtree", "torch", "transformers", "sglang")


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the template shows above the notebook's own text."""

    title: str
    kind: str
    facts: list[str] = field(default_factory=list)
    chosen: list[Row] = field(default_factory=list)
    rest_is_default: bool = False
    parameters: list[Row] = field(default_factory=list)
    machine: list[Row] = field(default_factory=list)
    failure: str = ""
    failure_shown: bool = False
    note: str = ""
    origin: str = ""


def run_facts(notebook: NotebookNode, notebook_path: Path) -> RunFacts:
    """The facts of the run that `notebook` holds.

    A result.json that cannot be read, or is of other parameters, is not used, and the note says so.
    """
    cell_values = parameters_of(notebook)
    record, note = _record_beside(notebook_path, cell_values)
    stem = record.notebook if record else origin_stem(notebook) or notebook_path.stem
    values = {**cell_values, **(record.params if record else {})}
    defaults = defaults_of(notebook)
    failure = failure_of(notebook)
    return RunFacts(
        title=title(notebook) or stem,
        kind=f"ddtree · {stem}",
        facts=_facts_line(notebook, record),
        chosen=open_rows(stem, values, defaults),
        rest_is_default=set(values) == set(defaults),
        parameters=all_rows(stem, values),
        machine=_machine_rows(record) if record else [],
        failure=failure.reason,
        failure_shown=failure.shown,
        note=note,
        origin=f"{stem}.ipynb",
    )


def strangers(cell_values: Mapping[str, Any], record: RunRecord) -> list[str]:
    """Parameters whose value in `record` is not the notebook's: then the record is of another run."""
    return [name for name, value in record.params.items() if cell_values.get(name, value) != value]


def origin_stem(notebook: NotebookNode) -> str:
    """The name of the notebook that papermill executed, "" when it was another program."""
    return Path(notebook.metadata.get("papermill", {}).get("input_path") or "").stem


def _record_beside(notebook_path: Path, cell_values: Mapping[str, Any]) -> tuple[RunRecord | None, str]:
    beside = notebook_path.with_name(RESULT_NAME)
    if not beside.is_file():
        return None, ""
    try:
        record = read_record(beside)
    except RecordError as error:
        reason = str(error).replace(f"The result {beside}", f"The {RESULT_NAME} beside this notebook")
        return None, f"{reason} Nothing of it is shown."
    if other := strangers(cell_values, record):
        return None, f"The {RESULT_NAME} beside this notebook is of another run ({', '.join(other)}) and is not shown."
    return record, ""


def _facts_line(notebook: NotebookNode, record: RunRecord | None) -> list[str]:
    finished = record.finished_utc if record else ended(notebook)
    seconds = record.wall_s if record else seconds_of(notebook)
    facts = [clock(finished)] if finished else []
    if seconds:
        facts.append(f"took {duration(seconds)}")
    if record:
        facts.append(record.environment.name)
        facts += [f"seed {record.seed}"] if record.seed is not None else []
        facts += [f"revision {record.revision}"] if record.revision else []
        packages = record.environment.packages
        facts.append(", ".join(f"{name} {packages[name]}" for name in VERSIONS_ON_TOP if packages.get(name)))
    return [fact for fact in facts if fact]


def _machine_rows(record: RunRecord) -> list[Row]:
    machine = record.environment
    rows = [
        Row("CPU", f"{machine.cpu}, {machine.physical_cores or 'unknown'} physical cores"),
        Row("memory", f"{machine.memory_gib} GiB"),
        Row("GPU", machine.gpu or "not used"),
        Row("torch threads", str(machine.torch_threads or "torch was not loaded")),
        Row("peak memory", "unknown" if record.peak_rss_mib is None else f"{record.peak_rss_mib} MiB"),
        Row("platform", machine.platform),
        Row("revision", record.git_revision or "not in a git repository"),
        Row("python", machine.python),
    ]
    return rows + [Row(name, version) for name, version in machine.packages.items() if version]


class Failure(NamedTuple):
    """Why a run failed, "" when it did not, and whether a cell of the notebook shows the error."""

    reason: str
    shown: bool


def failure_of(notebook: NotebookNode) -> Failure:
    """The first error of a cell, else what `ddtree run` noted (a dead kernel leaves no error)."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                reason = f"{output.ename}: {output.evalue}".strip().removesuffix(":").removesuffix(".")
                return Failure(reason, shown=True)
    return Failure(notebook.metadata.get("ddtree", {}).get("failure", ""), shown=False)


def cells_run(notebook: NotebookNode) -> tuple[int, int]:
    """How many code cells that hold code were executed, and how many there are."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    return sum(cell.get("execution_count") is not None for cell in cells), len(cells)


def ended(notebook: NotebookNode) -> datetime | None:
    """When papermill stopped, or started when it was itself ended, in UTC; None for a notebook run otherwise."""
    papermill = notebook.metadata.get("papermill", {})
    moment = papermill.get("end_time") or papermill.get("start_time")
    return in_utc(datetime.fromisoformat(moment)) if moment else None


def seconds_of(notebook: NotebookNode) -> float | None:
    """How long papermill took, in seconds."""
    seconds = notebook.metadata.get("papermill", {}).get("duration")
    return float(seconds) if seconds else None


def clock(moment: datetime) -> str:
    """A moment in UTC: "29 November 2026, 20:21 UTC"."""
    return moment.strftime("%-d %B %Y, %H:%M UTC")


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
