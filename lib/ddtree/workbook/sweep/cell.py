"""Run one cell of a sweep in its own process: `python -m ddtree.workbook.sweep.cell PLAN CELL THREADS`.

result.json means that the cell is done; failure.json says why it is not."""

import contextlib
import fcntl
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from ddtree.workbook.params import PARAMS
from ddtree.workbook.paths import project_root
from ddtree.workbook.records import RESULT_NAME, RecordError, read_result, write_text
from ddtree.workbook.sweep.grid import cell_folder, read_plan

FAILURE_NAME = "failure.json"
GPUS_VARIABLE = "DDTREE_SWEEP_GPUS"
CUDA_VARIABLE = "CUDA_VISIBLE_DEVICES"
WAIT_S = 0.5  # seconds between two looks for a free GPU
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def is_done(folder: Path) -> bool:
    """Whether a whole result is there: one from a run that was stopped half way is marked incomplete."""
    try:
        record = read_result(folder)
    except RecordError:
        return False
    return record.get("metrics", {}).get("complete") is not False


def failure_of(folder: Path) -> str | None:
    """Why the cell failed; None if it has not. Raises RecordError for a failure.json that cannot be read."""
    path = folder / FAILURE_NAME
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["failure"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"The record {path} cannot be read: {error}.") from error


def write_failure(folder: Path, reason: str) -> None:
    """Write why the cell failed, and remove a partial result, so that nothing takes it for a whole one.

    Raises RecordError for a folder that cannot be written.
    """
    (folder / RESULT_NAME).unlink(missing_ok=True)
    write_text(folder / FAILURE_NAME, json.dumps({"failure": reason}, ensure_ascii=False) + "\n")


def reset(folder: Path) -> None:
    """Remove the result and the failure of an earlier try of an unfinished cell; its other files stay."""
    for name in (RESULT_NAME, FAILURE_NAME):
        (folder / name).unlink(missing_ok=True)


def visible_gpus() -> list[str]:
    """The names under which CUDA knows the GPUs that this process may use."""
    given = os.environ.get(CUDA_VARIABLE)
    if given is not None:
        return [name.strip() for name in given.split(",") if name.strip() not in ("", "-1")]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


@contextlib.contextmanager
def own_gpu() -> Iterator[None]:
    """Inside, CUDA sees one GPU of DDTREE_SWEEP_GPUS that no other cell has; waits until one is free.

    Where that variable is not set, as on a cluster, the scheduler has chosen already and nothing changes.
    """
    names = os.environ.get(GPUS_VARIABLE)
    if not names:
        yield
        return
    name, lock = _wait_for_one(names.split(","))
    os.environ[CUDA_VARIABLE] = name
    with lock:
        yield


def run_cell(plan_path: Path, cell_id: str, threads: int) -> str:
    """Run the notebook for one cell of the plan with `threads` CPU threads. Returns why it failed, "" if it did not.

    The folder gets executed.ipynb and what the notebook writes, and failure.json if there is no whole result.
    """
    plan = read_plan(plan_path)
    cell = plan.cell(cell_id)
    folder = cell_folder(plan_path.parent, cell_id)
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))  # read when the kernel's libraries load
    from ddtree.workbook.runner import run_notebook  # loads Jupyter

    params = PARAMS[plan.notebook].from_mapping({**cell.params, "threads": threads})
    notebook = project_root() / "notebooks" / f"{plan.notebook}.ipynb"
    try:
        with own_gpu() if cell.gpus else contextlib.nullcontext():
            failure = run_notebook(notebook, params, folder, report=False).failure
    except Exception as error:
        write_failure(folder, f"{type(error).__name__}: {error}")
        raise
    if not failure and not is_done(folder):
        failure = "the notebook ran to its end, but wrote no complete result.json"
    if failure:
        write_failure(folder, failure)
    return failure


def _wait_for_one(names: list[str]) -> tuple[str, TextIO]:
    folder = Path(tempfile.gettempdir()) / f"ddtree-gpus-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    while True:
        for name in names:
            lock = (folder / name.replace("/", "-")).open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
            else:
                return name, lock
        time.sleep(WAIT_S)


if __name__ == "__main__":
    given_plan, given_cell, given_threads = sys.argv[1:]
    reason = run_cell(Path(given_plan), given_cell, int(given_threads))
    sys.exit(f"The cell failed: {reason}." if reason else 0)
