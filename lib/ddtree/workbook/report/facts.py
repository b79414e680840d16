"""The head of a report: title, parameters, machine and fate of the run, from the notebook and its result.json."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from ddtree.workbook.records import RESULT_NAME, RecordError
from ddtree.workbook.report.fate import clock, duration, ended, failure_of, seconds_of
from ddtree.workbook.report.outline import title
from ddtree.workbook.report.parameters import Row, all_rows, defaults_of, open_rows, parameters_of
from ddtree.workbook.report.record import RunRecord, read_record

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
