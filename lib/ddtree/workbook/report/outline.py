"""Which cells of an executed notebook a report shows: those of this run, without what its header already says."""

import copy
import re

from nbformat import NotebookNode

from ddtree.workbook.report.figures import PLOTLY

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
