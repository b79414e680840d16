"""One cell of a sweep in a process of its own: `python -m ddtree.workbook.sweep.cell PLAN CELL THREADS`."""

import contextlib
import os
import sys
from pathlib import Path

from ddtree.workbook.params import PARAMS
from ddtree.workbook.paths import project_root
from ddtree.workbook.sweep.devices import own_gpu
from ddtree.workbook.sweep.outcome import is_done, write_failure
from ddtree.workbook.sweep.plan import cell_folder, read_plan

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def run_cell(plan_path: Path, cell_id: str, threads: int) -> str:
    """Run the notebook for one cell of the plan with `threads` CPU threads. Returns why it failed, "" if it did not.

    The folder gets executed.ipynb and what the notebook writes, and failure.json if there is no whole result.
    """
    plan = read_plan(plan_path)
    cell = plan.cell(cell_id)
    folder = cell_folder(plan_path.parent, cell_id)
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))  # read when the kernel's libraries load
    from ddtree.workbook.run import run_notebook  # loads Jupyter

    params = PARAMS[plan.notebook].from_mapping({**cell.params, "threads": threads})
    notebook = project_root() / "notebooks" / f"{plan.notebook}.ipynb"
    try:
        with own_gpu() if cell.gpus else contextlib.nullcontext():
            failure = run_notebook(notebook, params, folder, report=False).failure
    except Exception as error:
        write_failure(folder, f"{type(error).__name__}: {error}")
        raise
    if not failure and not is_done(folder):
        failure = "the notebook went through, but wrote no whole result.json"
    if failure:
        write_failure(folder, failure)
    return failure


if __name__ == "__main__":
    given_plan, given_cell, given_threads = sys.argv[1:]
    reason = run_cell(Path(given_plan), given_cell, int(given_threads))
    sys.exit(f"The cell failed: {reason}." if reason else 0)
