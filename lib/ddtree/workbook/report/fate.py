"""How a run ended, from its notebook, and its times in words."""

from datetime import datetime
from typing import NamedTuple

from nbformat import NotebookNode

from ddtree.workbook.report.record import in_utc


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
