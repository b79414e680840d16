"""Snakemake at work in a sweep's folder: one process, its words in snakemake.log, which is locked while it lives."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from ddtree.workbook.interrupts import handling
from ddtree.workbook.paths import project_root
from ddtree.workbook.sweep.jobs import NO_PROFILE, Jobs, environment_of
from ddtree.workbook.sweep.plan import Plan
from ddtree.workbook.sweep.progress import ProgressLine
from ddtree.workbook.sweep.stopping import Stop, end_family
from ddtree.workbook.sweep.tally import Tally

LOG_NAME = "snakemake.log"
CORES_OF_A_CLUSTER = 1_000_000  # no bound, in a dry run
LOOK_S = 0.3  # seconds between two looks at the cells


class BusyError(RuntimeError):
    """Another process is at work in the sweep's folder."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a call went: cells that failed in it with the reason, cells that are to be run yet, and why."""

    failures: dict[str, str]
    waiting: list[str]
    stopped: bool  # by a signal
    code: int  # Snakemake's


def dry_run(folder: Path, jobs: Jobs) -> tuple[bool, str]:
    """What Snakemake would do with the plan in `folder`: whether it can, and its words."""
    # Without a number of cores a dry run plans with one, and would show one thread for every job of a cluster.
    cores = [] if jobs.local else ["--cores", str(CORES_OF_A_CLUSTER)]
    command = [*_command(folder), *jobs.options, *cores, "--dry-run", "--quiet", "host"]
    done = subprocess.run(command, env=environment_of(jobs), cwd=project_root(), capture_output=True, text=True)
    return done.returncode == 0, (done.stdout + done.stderr).strip()


class Engine:
    """Runs the unfinished cells of a plan. As a context it holds the sweep's folder against a second sweep."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder
        self._log: TextIO | None = None

    def __enter__(self) -> Engine:
        """Raises BusyError. Removes the lock that a killed Snakemake has left behind, and says so."""
        self._folder.mkdir(parents=True, exist_ok=True)
        log = (self._folder / LOG_NAME).open("a", encoding="utf-8")
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            log.close()
            raise BusyError(
                f"Another sweep, or the Snakemake of one that was killed, is at work in {self._folder}; "
                "wait for it, or end it, and call again."
            ) from error
        self._log = log
        if self._unlock():
            print("An earlier sweep was killed here; the lock that it left is removed.", flush=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._unlock()
        if self._log:
            self._log.close()

    def run(self, jobs: Jobs) -> Ending:
        """Run every unfinished cell; returns when all have ended, or SIGINT or SIGTERM has stopped them."""
        tally = Tally(self._plan, self._folder)
        if not tally.todo:
            return Ending({}, [], False, 0)
        tally.begin()
        process = subprocess.Popen(
            [*_command(self._folder), *jobs.options],
            env=environment_of(jobs),
            cwd=project_root(),
            stdin=subprocess.DEVNULL,
            stdout=self._log,  # a killed sweep's Snakemake keeps it open, and so the folder locked
            stderr=subprocess.STDOUT,
            start_new_session=True,  # the terminal's Ctrl-C is for us, who pass it on
        )
        stop = Stop(process, local=jobs.local)
        try:
            with handling(stop.note):
                _watch(process, tally, stop)
        finally:
            end_family(process)
        waiting = tally.end()
        return Ending(tally.failures, waiting, stop.asked, process.returncode)

    def _unlock(self) -> bool:
        """Whether there was a lock of Snakemake to remove. It is nobody's: who works here has locked the log."""
        locks = self._folder / ".snakemake" / "locks"
        if not locks.is_dir() or not any(locks.iterdir()):
            return False
        command = [*_command(self._folder), *NO_PROFILE, "--cores", "1", "--unlock"]
        subprocess.run(command, cwd=project_root(), stdout=self._log, stderr=subprocess.STDOUT, check=True)
        return True


def _watch(process: subprocess.Popen[bytes], tally: Tally, stop: Stop) -> None:
    """Show the progress and pass signals on, until Snakemake ends."""
    began = time.monotonic()
    line = ProgressLine()
    while True:
        ended = process.poll() is not None
        line.show(tally.look(), time.monotonic() - began)
        if ended:
            break
        if stop.asked:
            line.close()
            tally.stop()
            stop.pass_on()
        time.sleep(LOOK_S)
    line.close()


def _command(folder: Path) -> list[str]:
    snakefile = project_root() / "Snakefile"
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(snakefile), "--directory", str(folder)]
    return [*command, "--keep-going", "--rerun-triggers", "mtime", "--drop-metadata", "--nocolor"]
