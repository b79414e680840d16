"""The one line that says how far a sweep is: redrawn on a terminal, a line of its own per ended cell elsewhere."""

import sys
from dataclasses import dataclass

MINUTE = 60  # seconds


@dataclass(frozen=True, slots=True)
class Count:
    """Cells of the plan that have ended, of which `failed` without a result; `fresh` of them in this call."""

    total: int
    ended: int
    failed: int
    fresh: int

    def line(self, seconds: float) -> str:
        """`12 of 48 cells, 1 failed, 6 min done, about 17 min left`, `seconds` after the start of this call."""
        parts = [f"{self.ended} of {self.total} cells"]
        parts += [f"{self.failed} failed"] if self.failed else []
        parts += [f"{duration(seconds)} done"]
        left = self.total - self.ended
        if left and self.fresh:
            parts.append(f"about {duration(seconds / self.fresh * left)} left")
        return ", ".join(parts)


def duration(seconds: float) -> str:
    """`40 s`, `6 min` or `2 h 05 min`."""
    if seconds < 1.5 * MINUTE:
        return f"{seconds:.0f} s"
    minutes = round(seconds / MINUTE)
    return f"{minutes} min" if minutes < MINUTE else f"{minutes // MINUTE} h {minutes % MINUTE:02d} min"


class ProgressLine:
    """Shows a Count: as often as asked on a terminal, elsewhere only when a cell has ended since."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._shown = ""
        self._ended = -1

    def show(self, count: Count, seconds: float) -> None:
        line = count.line(seconds)
        if self._terminal and line != self._shown:
            print(f"\r{line:<{len(self._shown)}}", end="", flush=True)
            self._shown = line
        elif not self._terminal and count.fresh and count.ended != self._ended:
            print(line, flush=True)
        self._ended = count.ended

    def close(self) -> None:
        """Leave the line as it stands; what is printed next begins a new one."""
        if self._shown:
            print(flush=True)
        self._shown = ""
