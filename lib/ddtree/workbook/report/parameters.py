"""The parameters of a run as a reader sees them: this run's values, which of them are no defaults, their meanings."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nbformat import NotebookNode

from ddtree.workbook.params import PARAMS
from ddtree.workbook.report.outline import tags

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
