"""Whether a report is too heavy to send, and which of its outputs make it so."""

import json
from typing import NamedTuple

from nbformat import NotebookNode

from ddtree.workbook.report.figures import PLOTLY, figure_view

MAX_MB = 6
NAMED = 3
MEGABYTE = 10**6


class Part(NamedTuple):
    """One output of a notebook: what a reader would call it, and its size in bytes."""

    name: str
    size: int


def too_heavy(html: str, notebook: NotebookNode) -> str:
    """A sentence when `html` has more than MAX_MB megabytes, with the largest outputs named; else ""."""
    size = len(html.encode())
    if size <= MAX_MB * MEGABYTE:
        return ""
    largest = ", ".join(f"{part.name} ({_megabytes(part.size)})" for part in parts(notebook)[:NAMED])
    return (
        f"This report has {_megabytes(size)}, more than the {MAX_MB} MB that a mail takes; "
        f"draw fewer points or print less. Largest: {largest or 'its text'}."
    )


def parts(notebook: NotebookNode) -> list[Part]:
    """Every output of the notebook, the largest first."""
    found = []
    for number, cell in enumerate(notebook.cells, start=1):
        for output in cell.get("outputs", []):
            content = output.get("data") or output.get("text") or output.get("traceback") or ""
            found.append(Part(_name(output, number), len(json.dumps(content, ensure_ascii=False).encode())))
    return sorted(found, key=lambda part: part.size, reverse=True)


def _name(output: NotebookNode, number: int) -> str:
    figure = output.get("data", {}).get(PLOTLY)
    if figure is None:
        return f"an output of cell {number}"
    caption = figure_view(figure).title
    return f"the figure “{caption}”" if caption else f"the figure of cell {number}"


def _megabytes(size: int) -> str:
    return f"{size / MEGABYTE:.1f} MB"
