"""Run a sweep's cells through Snakemake, here or on a cluster, with progress, signals and a summary."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TextIO

import psutil

from ddtree.workbook.interrupts import handling
from ddtree.workbook.params import PARAMS
from ddtree.workbook.paths import project_root
from ddtree.workbook.runner import RunOutcome, run_notebook
from ddtree.workbook.sweep.cell import GPUS_VARIABLE, failure_of, is_done, reset, visible_gpus, write_failure
from ddtree.workbook.sweep.grid import Cell, Plan, cell_folder, from_root

LOCAL = "local"
PROFILES = Path("params/sweeps/profiles")  # relative to the project root
NO_PROFILE = ("--profile", "none", "--workflow-profile", "none")
SNAKEMAKE_LOG = "snakemake.log"
CORES_OF_A_CLUSTER = 1_000_000  # no bound, in a dry run
LOOK_S = 0.3  # seconds between two looks at the cells
CELL_MODULE = "ddtree.workbook.sweep.cell"
STOPPING_LINE = "Stopping: the cells that run are ended, those done are kept. Again to end them at once."
CELL_LOG = "cell.log"  # the shell makes it when the cell's process starts
SILENT = (
    "its process ended without a reason: it was killed, by hand, by the scheduler or for want of memory; "
    f"{CELL_LOG} has its last words"
)
NOTEBOOK = "05_sweep"  # summarises a sweep
FOLDER_NAME = "summary"
MINUTE = 60  # seconds


class BusyError(RuntimeError):
    """Another process is at work in the sweep's folder."""


class ExecutorError(ValueError):
    """The cells cannot be started this way; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Jobs:
    """Snakemake's options and environment for one way to run cells; `local` ones it waits for when it is stopped."""

    options: list[str]
    local: bool
    note: str  # what the user should know before the start; "" if nothing
    environment: dict[str, str] = field(default_factory=dict)


def local_jobs(count: int, cells: list[Cell]) -> Jobs:
    """`count` cells at once, each with its share of the physical cores, at least one. Raises ExecutorError."""
    threads = threads_of_each(count, psutil.cpu_count(logical=False) or 1)
    on_gpu = any(cell.gpus for cell in cells)
    gpus = visible_gpus() if on_gpu else []
    if on_gpu and not gpus:
        raise ExecutorError("device is cuda, but CUDA sees no GPU here; use device: cpu or --executor slurm.")
    options = [*NO_PROFILE, "--executor", LOCAL]
    options += ["--cores", str(count * threads), "--set-threads", f"cell={threads}", "--resources", f"gpu={len(gpus)}"]
    environment = {GPUS_VARIABLE: ",".join(gpus)}
    if count == 1:
        return Jobs(options, True, "", environment)
    note = (
        f"{count} cells at once, {threads} thread(s) each: tokens/s are those of loaded cores, "
        "so compare speeds within a cell only."
    )
    return Jobs(options, True, note, environment | {"OMP_WAIT_POLICY": "PASSIVE"})


def threads_of_each(jobs: int, cores: int) -> int:
    return max(1, cores // jobs)


def remote_jobs(executor: str | None, profile: str | None, count: int | None) -> Jobs:
    """What the profile says, else the one shipped for `executor`; `count` jobs at most. Raises ExecutorError."""
    module = f"snakemake_executor_plugin_{(executor or '').replace('-', '_')}"
    if executor is not None and importlib.util.find_spec(module) is None:
        raise ExecutorError(
            f"The executor {executor} needs the package snakemake-executor-plugin-{executor}: "
            f"{sys.executable} -m pip install snakemake-executor-plugin-{executor}"
        )
    if profile is None:
        shipped = project_root() / PROFILES / (executor or "")
        if not executor or not shipped.is_dir():
            raise ExecutorError(f"The executor {executor} has no profile in {PROFILES}/; name one by --profile.")
        profile = str(shipped)
    elif Path(profile).exists():
        profile = str(Path(profile).absolute())
    options = ["--profile", profile, "--workflow-profile", "none"]
    options += ["--executor", executor] if executor else []
    options += ["--jobs", str(count)] if count else []
    return Jobs(options, executor == LOCAL, "")


def environment_of(jobs: Jobs) -> dict[str, str]:
    """Our environment and what `jobs` adds; never a profile or a GPU list that only the shell knows of."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("SNAKEMAKE_PROFILE", GPUS_VARIABLE)}
    return inherited | jobs.environment


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
            reset(place)
            (place / CELL_LOG).unlink(missing_ok=True)

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
            if not self._stopped and (place / CELL_LOG).exists():
                write_failure(place, SILENT)
                self.failures[cell_id] = SILENT
            else:
                reset(place)
                waiting.append(cell_id)
        return waiting


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


class Stop:
    """What the signals that came so far ask of the Snakemake process and its cells.

    The first interrupts each running cell, which keeps what it measured; the next ends its kernel. Jobs of a cluster
    run elsewhere, and are Snakemake's to cancel.
    """

    def __init__(self, process: subprocess.Popen[bytes], *, local: bool) -> None:
        self._process = process
        self._local = local
        self.asked = 0  # signals that came
        self._passed_on = 0
        self._interrupted: set[int] = set()

    def note(self, _number: int, _frame: FrameType | None) -> None:
        """The signal handler: nothing happens before `pass_on`."""
        self.asked += 1

    def pass_on(self) -> None:
        """To be called again and again: a cell that Snakemake was just starting when the signal came is met later."""
        if self.asked > self._passed_on:
            if not self._passed_on:
                print(STOPPING_LINE, file=sys.stderr, flush=True)
            self._passed_on = self.asked
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
    found = set()
    with contextlib.suppress(psutil.NoSuchProcess):
        for member in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it has just ended
                if member.cmdline()[1:3] == ["-m", CELL_MODULE]:
                    found.add(member.pid)
    return found


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
        log = (self._folder / SNAKEMAKE_LOG).open("a", encoding="utf-8")
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
        return Ending(tally.failures, waiting, stop.asked > 0, process.returncode)

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


def summary_notebook() -> Path | None:
    """The notebook that summarises a sweep, if the project has it."""
    path = project_root() / "notebooks" / f"{NOTEBOOK}.ipynb"
    return path if path.is_file() and NOTEBOOK in PARAMS else None


def summarise(notebook: Path, folder: Path) -> RunOutcome:
    """Run `notebook` on the sweep in `folder`, finished or partial. Raises RecordError and OSError of the disk."""
    out_dir = folder / FOLDER_NAME
    params = PARAMS[NOTEBOOK].from_mapping({"sweep_dir": from_root(folder), "out_dir": from_root(out_dir)})
    return run_notebook(notebook, params, out_dir)
