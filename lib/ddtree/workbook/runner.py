"""Run one notebook with full parameters; executed.ipynb and report.html are written however the run ends."""

import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import nbformat
import papermill
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning import LocalProvisioner
from nbclient.exceptions import CellTimeoutError
from papermill.exceptions import PapermillException, PapermillExecutionError
from tqdm import tqdm  # type: ignore[import-untyped]
from traitlets.config import Config

from ddtree.workbook.explore import LIVE_VARIABLE
from ddtree.workbook.interrupts import handling
from ddtree.workbook.params import NotebookParams
from ddtree.workbook.paths import project_root
from ddtree.workbook.records import EXECUTED_NAME, REPORT_NAME, RESULT_NAME, RUN_NAME, write_text
from ddtree.workbook.report.html import export

STOPPING_LINE = "Stopping: what was measured is kept and reported. Again to stop at once."


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The files of a run, and why it failed ("" when it did not). A failed run may have no result."""

    executed: Path
    result: Path
    report: Path
    failure: str


def run_notebook(notebook: Path, params: NotebookParams, out_dir: Path, *, report: bool = True) -> RunOutcome:
    """Execute `notebook` with every parameter of `params` in a fresh kernel at the project root.

    The files of these names and run.json from an earlier run are removed first, so the folder never mixes two runs.
    The lines that the notebook prints appear as they come, above a bar of cells on a terminal. The first SIGINT or
    SIGTERM interrupts the cell that is running, the second ends the kernel; both are failures.
    Without `report` no report.html is built: a sweep has many runs, and each report holds all of plotly.js.
    """
    outcome = RunOutcome(out_dir / EXECUTED_NAME, out_dir / RESULT_NAME, out_dir / REPORT_NAME, "")
    out_dir.mkdir(parents=True, exist_ok=True)
    for path in (outcome.executed, outcome.result, outcome.report, out_dir / RUN_NAME):
        path.unlink(missing_ok=True)
    failure = _execute(notebook, params, outcome.executed)
    if outcome.executed.is_file():
        _patch_metadata(outcome.executed, failure)
        if report:
            export(outcome.executed, outcome.report)
    return RunOutcome(outcome.executed, outcome.result, outcome.report, failure)


def _execute(notebook: Path, params: NotebookParams, executed: Path) -> str:
    kernels: list[AsyncKernelManager] = []

    class Kernel(AsyncKernelManager):
        """Remembered, because the user's signals reach only this process: a kernel has its own session."""

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            kernels.append(self)

    def forward(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        process = kernels[-1].provisioner if kernels else None
        if not isinstance(process, LocalProvisioner) or process.pgid is None:
            raise KeyboardInterrupt
        print(STOPPING_LINE, file=sys.stderr, flush=True)
        os.killpg(process.pgid, signal.SIGINT)

    try:
        with _static_figures(), ipc_sockets() as config, handling(forward):
            papermill.execute_notebook(
                notebook,
                executed,
                parameters=params.to_plain(),
                kernel_name="python3",
                language="python",
                cwd=project_root(),
                progress_bar=sys.stderr.isatty(),
                stdout_file=_PrintAboveBar(),
                config=config,
                coalesce_streams=True,  # else every printed line is a separate output
                kernel_manager_class=Kernel,
            )
    except PapermillExecutionError as error:
        if error.ename == "KeyboardInterrupt":
            return f"it was interrupted in cell {error.cell_index + 1}"
        return f"cell {error.cell_index + 1} raised {error.ename}: {error.evalue}"
    except KeyboardInterrupt:
        return "it was interrupted before its end"
    except (PapermillException, RuntimeError, CellTimeoutError, OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _patch_metadata(executed: Path, failure: str) -> None:
    """Correct what papermill leaves in the notebook's metadata.

    It marks every cell as completed when the kernel dies or the user interrupts, so the reason is added. It names files
    by their absolute paths on this machine, which a colleague should not get.
    """
    notebook = nbformat.read(executed, as_version=4)
    if failure:
        notebook.metadata["ddtree"] = {"failure": failure}
    root, facts = project_root(), notebook.metadata.get("papermill", {})
    for name in ("input_path", "output_path"):
        path = Path(str(facts.get(name)))
        if name in facts and path.is_absolute():
            facts[name] = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
    write_text(executed, nbformat.writes(notebook) + "\n")


@contextlib.contextmanager
def ipc_sockets() -> Iterator[Config]:
    """A kernel configuration with IPC sockets in a temporary folder, so nothing listens on the network.

    Neither ports nor Jupyter's default socket names (numbered in the current folder) keep two runs that start at once
    apart.
    """
    with tempfile.TemporaryDirectory(prefix="ddtree-") as folder:
        sockets = {"transport": "ipc", "ip": f"{folder}/kernel"}
        yield Config({"KernelManager": sockets, "AsyncKernelManager": sockets})


@contextlib.contextmanager
def _static_figures() -> Iterator[None]:
    """Inside, kernels inherit an environment without a front-end, even if JupyterLab started this process."""
    before = os.environ.get(LIVE_VARIABLE)
    os.environ[LIVE_VARIABLE] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[LIVE_VARIABLE]
        else:
            os.environ[LIVE_VARIABLE] = before


class _PrintAboveBar:
    """A text file that prints what it gets, without tearing the progress bar."""

    def write(self, text: str) -> None:
        tqdm.write(text, file=sys.stdout, end="")

    def flush(self) -> None:
        sys.stdout.flush()
