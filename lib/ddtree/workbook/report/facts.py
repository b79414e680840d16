"""The head of a report: title, parameters, machine and fate of the run, from the notebook and its result.json."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from ddtree.workbook.params import PARAMS
from ddtree.workbook.records import RESULT_NAME, read_result
from ddtree.workbook.report.outline import tags, title


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table of facts."""

    name: str
    value: str
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the template shows above the notebook's own text."""

    title: str
    kind: str
    facts: list[str] = field(default_factory=list)
    parameters: list[Row] = field(default_factory=list)
    machine: list[Row] = field(default_factory=list)
    failure: str = ""
    failure_shown: bool = False
    note: str = ""
    origin: str = ""


def run_facts(notebook: NotebookNode, notebook_path: Path) -> RunFacts:
    """The facts of the run that `notebook` holds. A result.json of other parameters is not used, and is named."""
    cell_values = parameters_of(notebook)
    beside = notebook_path.with_name(RESULT_NAME)
    result = read_result(beside) if beside.is_file() else {}
    note = ""
    strangers = [name for name, value in result.get("params", {}).items() if cell_values.get(name, value) != value]
    if strangers:
        note = f"The {RESULT_NAME} beside this notebook is of another run ({', '.join(strangers)}) and is not shown."
        result = {}
    stem = result.get("notebook") or _origin_stem(notebook) or notebook_path.stem
    failure, failure_shown = _failure(notebook)
    return RunFacts(
        title=title(notebook) or stem,
        kind=f"ddtree · {stem}",
        facts=_facts_line(notebook, result),
        parameters=_parameter_rows(stem, {**cell_values, **result.get("params", {})}),
        machine=_machine_rows(result),
        failure=failure,
        failure_shown=failure_shown,
        note=note,
        origin=f"{stem}.ipynb",
    )


def parameters_of(notebook: NotebookNode) -> dict[str, Any]:
    """Names to values of the parameters cell, overridden by the injected one; only values written out count."""
    values: dict[str, Any] = {}
    for tag in ("parameters", "injected-parameters"):
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


def _parameter_rows(stem: str, values: Mapping[str, Any]) -> list[Row]:
    model = PARAMS.get(stem)
    order = [name for name in model.model_fields if name in values] if model else []
    order += [name for name in values if name not in order]
    meanings = {name: model.schema_of(name)["description"] for name in model.model_fields} if model else {}
    return [Row(name, _written(values[name]), meanings.get(name, "")) for name in order]


def _written(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(entry, str) for entry in value):
        return "\n".join(f"· {entry}" for entry in value)
    if isinstance(value, list):
        return ", ".join(str(entry) for entry in value) or "none"
    return str(value)


def _facts_line(notebook: NotebookNode, result: Mapping[str, Any]) -> list[str]:
    papermill = notebook.metadata.get("papermill", {})
    finished = result.get("finished_utc") or papermill.get("end_time") or papermill.get("start_time")
    seconds = result.get("wall_s") or papermill.get("duration")
    machine = result.get("environment", {})
    facts = []
    if finished:
        facts.append(datetime.fromisoformat(finished).strftime("%-d %B %Y, %H:%M UTC"))
    if seconds:
        facts.append(f"took {duration(float(seconds))}")
    if machine:
        facts.append(machine.get("gpu") or f"{machine['cpu']}, {machine['physical_cores']} cores")
    if result:
        facts.append(f"seed {result['seed']}")
    if result.get("git_revision"):
        commit, _, dirty = result["git_revision"].partition("-")
        facts.append(f"revision {commit[:10]}" + (" with local changes" if dirty else ""))
    return facts


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


def _machine_rows(result: Mapping[str, Any]) -> list[Row]:
    if not result:
        return []
    machine = result["environment"]
    rows = [
        Row("CPU", f"{machine['cpu']}, {machine['physical_cores']} physical cores"),
        Row("memory", f"{machine['memory_gib']} GiB"),
        Row("GPU", machine["gpu"] or "not used"),
        Row("torch threads", str(machine["torch_threads"] or "torch was not loaded")),
        Row("peak memory", f"{result['peak_rss_mib']} MiB"),
        Row("platform", machine["platform"]),
        Row("revision", result["git_revision"] or "not in a git repository"),
        Row("python", machine["python"]),
    ]
    return rows + [Row(name, version) for name, version in machine["packages"].items() if version]


def _failure(notebook: NotebookNode) -> tuple[str, bool]:
    """Why the run failed ("" when it did not), and whether a cell shows the error."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                return f"{output.ename}: {output.evalue}".strip().removesuffix(":").removesuffix("."), True
    return notebook.metadata.get("ddtree", {}).get("failure", ""), False


def _origin_stem(notebook: NotebookNode) -> str:
    path = notebook.metadata.get("papermill", {}).get("input_path") or ""
    return Path(path).stem
