"""Which cells of a running sweep have ended, read from their folders; a cell that has ended stays so."""

from pathlib import Path

from ddtree.workbook.sweep.outcome import failure_of, forget, is_done, write_failure
from ddtree.workbook.sweep.plan import Plan, cell_folder
from ddtree.workbook.sweep.progress import Count

LOG_NAME = "cell.log"  # the shell makes it when the cell's process starts
SILENT = (
    "its process ended without a reason: it was killed, by hand, by the scheduler or for want of memory; "
    f"{LOG_NAME} has its last words"
)


class Tally:
    """The cells without a whole result at the start, `todo`, and how those that ended since did.

    `failures` holds the reason of each cell that failed, until `stop`: what fails later was interrupted.
    """

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.todo = [cell.id for cell in plan.cells if not is_done(cell_folder(folder, cell.id))]
        self.failures: dict[str, str] = {}
        self._folder = folder
        self._total = len(plan.cells)
        self._open = list(self.todo)
        self._stopped = False

    def begin(self) -> None:
        """Forget what earlier tries of the unfinished cells said of their end."""
        for cell_id in self.todo:
            place = cell_folder(self._folder, cell_id)
            forget(place)
            (place / LOG_NAME).unlink(missing_ok=True)

    def look(self) -> Count:
        """How many cells have ended by now. Raises RecordError for a failure.json that is none."""
        for cell_id in list(self._open):
            place = cell_folder(self._folder, cell_id)
            if is_done(place):
                self._open.remove(cell_id)
            elif not self._stopped and (reason := failure_of(place)) is not None:
                self._open.remove(cell_id)
                self.failures[cell_id] = reason
        return Count(self._total, self._total - len(self._open), len(self.failures), len(self.todo) - len(self._open))

    def stop(self) -> None:
        """From now on a failure is an interruption, and the cell is run again by the next call."""
        self.look()
        self._stopped = True

    def end(self) -> list[str]:
        """No job runs any more. Returns the cells that are to be run yet, and have not failed.

        A cell that began and says nothing of its end has failed; one that was interrupted is as if it never ran, but
        for what it measured.
        """
        self.look()
        waiting = []
        for cell_id in self.todo:
            place = cell_folder(self._folder, cell_id)
            if is_done(place) or cell_id in self.failures:
                continue
            if not self._stopped and (place / LOG_NAME).exists():
                write_failure(place, SILENT)
                self.failures[cell_id] = SILENT
            else:
                forget(place)
                waiting.append(cell_id)
        return waiting
