"""Which names of a notebook's globals were meant as parameters: those that a parameters cell assigned."""

import ast
from typing import Any

PLAIN_TYPES = (str, int, float, list, tuple, dict, type(None))  # all that papermill can inject
IPYTHON_NAMES = {"In", "Out", "exit", "quit", "open", "get_ipython"}
INJECTED_HEADING = "# Parameters"  # papermill writes it as the first line of the cell that it injects


def candidates(namespace: dict[str, Any], *, known: set[str]) -> dict[str, Any]:
    """The known parameters that exist, and other plain values that a parameters cell set.

    With IPython's list of executed cells (`In`) only those cells count that hold papermill's heading or
    give a known parameter its current value, so that a cell may be run again when later cells have
    left their own variables. Without it every public plain value counts.
    """
    executed = namespace.get("In")
    cell_names = _parameter_cell_names(executed, known) if isinstance(executed, list) else None
    return {
        name: value
        for name, value in namespace.items()
        if name in known or (_is_plain(name, value) and (cell_names is None or name in cell_names))
    }


def overwritten(namespace: dict[str, Any], *, known: set[str]) -> list[str]:
    """The known parameters that papermill injected before the cell of defaults, which then set them again.

    Papermill does so when no cell has the tag `parameters`; the values asked for would be lost in silence.
    """
    executed = namespace.get("In")
    setters = [source for source in executed if _assigned(source) & known] if isinstance(executed, list) else []
    if not setters or not setters[0].startswith(INJECTED_HEADING):
        return []
    again = {name for source in setters[1:] if not source.startswith(INJECTED_HEADING) for name in _assigned(source)}
    return sorted(_assigned(setters[0]) & known & again)


def _is_plain(name: str, value: object) -> bool:
    return not name.startswith("_") and name not in IPYTHON_NAMES and isinstance(value, PLAIN_TYPES)


def _parameter_cell_names(executed: list[str], known: set[str]) -> set[str]:
    superseded: set[str] = set()
    names: set[str] = set()
    for source in reversed(executed):
        assigned = _assigned(source)
        if source.startswith(INJECTED_HEADING) or (assigned & known) - superseded:
            names |= assigned
        superseded |= assigned & known
    return names


def _assigned(source: str) -> set[str]:
    try:
        statements = ast.parse(source).body
    except SyntaxError:  # a cell that failed to parse has set nothing
        return set()
    targets: list[ast.expr] = []
    for statement in statements:
        if isinstance(statement, ast.Assign):
            targets += statement.targets
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets.append(statement.target)
    return {target.id for target in targets if isinstance(target, ast.Name)}
