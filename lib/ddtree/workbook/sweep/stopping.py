"""SIGINT and SIGTERM during a sweep: the running cells are interrupted, none is started, Snakemake ends in order."""

import contextlib
import os
import signal
import subprocess
import sys
from types import FrameType

import psutil

CELL_MODULE = "ddtree.workbook.sweep.cell"
STOPPING_LINE = "Stopping: the cells that run are ended, those done are kept. Again to end them at once."


class Stop:
    """What the signals that came so far ask of the Snakemake process and its cells.

    The first interrupts each running cell, which keeps what it measured; the next ends its kernel. Jobs of a cluster
    run elsewhere, and are Snakemake's to cancel.
    """

    def __init__(self, process: subprocess.Popen[bytes], *, local: bool) -> None:
        self._process = process
        self._local = local
        self._asked = 0
        self._passed_on = 0
        self._interrupted: set[int] = set()

    @property
    def asked(self) -> bool:
        return self._asked > 0

    def note(self, _number: int, _frame: FrameType | None) -> None:
        """The signal handler: nothing happens before `pass_on`."""
        self._asked += 1

    def pass_on(self) -> None:
        """To be called again and again: a cell that Snakemake was just starting when the signal came is met later."""
        if self._asked > self._passed_on:
            if not self._passed_on:
                print(STOPPING_LINE, file=sys.stderr, flush=True)
            self._passed_on = self._asked
            self._interrupted = set()
            # By SIGTERM Snakemake waits for the jobs that run here; by SIGINT it cancels those of a cluster.
            self._process.send_signal(signal.SIGTERM if self._local else signal.SIGINT)
        if self._passed_on:
            for pid in cells_under(self._process.pid) - self._interrupted:
                self._interrupted.add(pid)
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.kill(pid, signal.SIGINT)


def cells_under(pid: int) -> set[int]:
    """The processes of cells among the descendants of the process `pid`."""
    try:
        family = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return set()
    return {member.pid for member in family if _is_cell(member)}


def end_family(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that still runs, and all its descendants; nothing is done to one that has ended."""
    if process.poll() is not None:
        return
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for member in family:
        if member.is_running():
            member.kill()
    process.wait()


def _is_cell(process: psutil.Process) -> bool:
    try:
        return process.cmdline()[1:3] == ["-m", CELL_MODULE]
    except psutil.Error:  # it has just ended
        return False
