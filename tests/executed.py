"""Every notebook on tiny settings, run once a session: by the first test that asks, in whichever worker."""

import contextlib
import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from ddtree.workbook.params import PARAMS, NotebookParams, ServingParams
from ddtree.workbook.paths import project_root
from ddtree.workbook.records import read_result
from ddtree.workbook.report.html import PLOTLY
from ddtree.workbook.runner import RunOutcome, run_notebook
from filelock import FileLock
from serving_record import write_made_up
from sweep_folder import cell_id, write_sweep

# Two workers whose kernels have two threads each are ten times slower on two cores.
THREADS = 1 if "PYTEST_XDIST_WORKER" in os.environ else 2
TINY: dict[str, dict[str, Any]] = {
    "01_tree": {"skip_tokens": 4, "budget": 8, "threads": THREADS},
    "02_kernel": {"skip_tokens": 4, "budget": 8, "law_draws": 2000, "threads": THREADS},
    "03_live": {
        "prompts": ["Explain in three sentences why the sky is blue.", "Give me five tips for a job interview."],
        "temperatures": [0.0, 1.0],
        "budget": 8,
        "extra_budgets": [4, "auto"],
        "max_new_tokens": 8,
        "bootstrap": 100,
        "regression_prompts": 1,
        "regression_tokens": 8,
        "diversity_samples": 2,
        "diversity_tokens": 12,
        "threads": THREADS,
    },
    "04_serving": {"bootstrap": 100, "threads": 1},
    "05_sweep": {"bootstrap": 200, "threads": 1},
    "07_speed": {
        "threads": 1,
        "vocabularies": [300],
        "batches": [1, 2],
        "budgets": [4, 12],
        "depth": 3,
        "topk_cap": 4,
        "repeats": 2,
        "live_models": ["tiny-shape"],
        "live_batches": [1, 2],
        "live_budgets": [4],
        "live_tokens": 6,
        "prompts": ["one", "two"],
        "max_new_tokens": 6,
        "bootstrap": 100,
    },
}
FIGURES = {"01_tree": 3, "02_kernel": 1, "03_live": 7, "04_serving": 7, "05_sweep": 7, "07_speed": 5}
SERVED = ServingParams.from_mapping({"extra_layers": [0, 100], "budgets": [16, 32]})  # as in the made-up record
NOT_RUN, FAILED = cell_id(1.0, 16), cell_id(0.6, 4)  # of the made-up sweep


@dataclass(frozen=True)
class Executed:
    """A notebook after its run: its files, and what it printed."""

    stem: str
    params: NotebookParams
    outcome: RunOutcome
    printed: str

    @property
    def metrics(self) -> dict[str, Any]:
        return read_result(self.outcome.result)["metrics"]

    @property
    def report(self) -> str:
        return self.outcome.report.read_text(encoding="utf-8")

    @property
    def figures(self) -> list[dict[str, Any]]:
        """The figures that it drew. Raises AssertionError for a warning, which no reader should meet."""
        cells = nbformat.read(self.outcome.executed, as_version=4).cells
        outputs = [output for cell in cells for output in cell.get("outputs", [])]
        assert not [output for output in outputs if output.get("name") == "stderr"]
        return [output["data"][PLOTLY] for output in outputs if PLOTLY in output.get("data", {})]

    @property
    def titles(self) -> list[str]:
        return [figure["layout"]["title"]["text"].replace(" <br>", " ") for figure in self.figures]


def execute(stem: str, values: dict[str, Any], out_dir: Path) -> Executed:
    """Raises AssertionError for a run that fails."""
    params = PARAMS[stem].from_mapping({**values, "out_dir": str(out_dir)})
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        outcome = run_notebook(project_root() / "notebooks" / f"{stem}.ipynb", params, out_dir)
    assert outcome.failure == "", f"{outcome.failure}\n{printed.getvalue()}"
    return Executed(stem, params, outcome, printed.getvalue())


@dataclass(frozen=True)
class Session:
    """A folder that the workers of one session share. What is in it was made once, and is not to be changed."""

    folder: Path

    def notebook(self, stem: str) -> Executed:
        """`stem` on its tiny settings, and on the made-up record or sweep where it needs one."""
        values = dict(TINY[stem])
        if stem == "04_serving":
            values["recorded"] = str(self.made_up_record)
        if stem == "05_sweep":
            values["sweep_dir"] = str(self.made_up_sweep)
        run = self._once(stem, lambda out_dir: self._execute(stem, values, out_dir))
        params = PARAMS[stem].from_mapping({**values, "out_dir": str(run)})
        outcome = RunOutcome(run / "executed.ipynb", run / "result.json", run / "report.html", "")
        return Executed(stem, params, outcome, (run / "printed.txt").read_text(encoding="utf-8"))

    @property
    def made_up_record(self) -> Path:
        """result.json of a serving run with every part."""
        return self._once("record", lambda folder: write_made_up(folder, SERVED, jitter=0.05)) / "result.json"

    @property
    def made_up_sweep(self) -> Path:
        """A sweep of nine cells, one of which was not run and one failed."""
        return self._once("sweep", lambda folder: write_sweep(folder, not_run=[NOT_RUN], failed=[FAILED]))

    @staticmethod
    def _execute(stem: str, values: dict[str, Any], out_dir: Path) -> None:
        done = execute(stem, values, out_dir)
        (out_dir / "printed.txt").write_text(done.printed, encoding="utf-8")

    def _once(self, name: str, make: Callable[[Path], object]) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        made = self.folder / f"{name}.made"
        with FileLock(self.folder / f"{name}.lock"):
            if not made.exists():
                make(self.folder / name)
                made.touch()
        return self.folder / name
