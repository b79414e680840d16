"""05_sweep run whole on made-up sweeps: complete, partial, and too small to compare anything."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pytest
from ddtree.workbook.params import SweepParams
from ddtree.workbook.paths import project_root
from ddtree.workbook.records import read_result
from ddtree.workbook.report.html import PLOTLY
from ddtree.workbook.runner import RunOutcome, run_notebook
from sweep_folder import FAILURE, cell_id, write_sweep


@dataclass(frozen=True)
class Done:
    outcome: RunOutcome
    printed: str

    @property
    def metrics(self) -> dict[str, Any]:
        return read_result(self.outcome.result)["metrics"]

    @property
    def figures(self) -> list[dict[str, Any]]:
        cells = nbformat.read(self.outcome.executed, as_version=4).cells
        outputs = [output for cell in cells for output in cell.get("outputs", [])]
        assert not [output for output in outputs if output.get("name") == "stderr"], "no warning reaches the reader"
        return [output["data"][PLOTLY] for output in outputs if PLOTLY in output.get("data", {})]

    def titles(self) -> list[str]:
        return [figure["layout"]["title"]["text"].replace(" <br>", " ") for figure in self.figures]


def run(sweep: Path, out_dir: Path, capsys: pytest.CaptureFixture[str], **values: Any) -> Done:
    params = SweepParams.from_mapping({"sweep_dir": str(sweep), "out_dir": str(out_dir), "bootstrap": 200, **values})
    outcome = run_notebook(project_root() / "notebooks" / "05_sweep.ipynb", params, out_dir)
    assert outcome.failure == ""
    return Done(outcome, capsys.readouterr().out)


def test_a_partial_sweep_is_read_as_far_as_it_got(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone, broken = cell_id(1.0, 16), cell_id(0.6, 4)
    sweep = write_sweep(tmp_path / "sweep", not_run=[gone], failed=[broken])
    done = run(sweep, tmp_path / "out", capsys)
    metrics = done.metrics
    assert metrics["cells"] == {"measured": 7, "in part": 0, "failed": 1, "unfinished": 0, "not run": 1}
    assert metrics["missing"] == {gone: "not run", broken: FAILURE}
    assert metrics["progress"] in done.printed
    assert len(done.figures) == 7
    found = metrics["settings"]["every run"]
    assert len(found["points"]) == 3 * 5 - 2
    assert set(found["best_budget"]) == set(found["auto"]) == {"0", "0.6", "1"}
    assert found["slowdown"] in done.printed
    assert "of the loss comes from acceptance" in found["slowdown"]
    assert found["beyond_entropy"]["sentence"] in done.printed
    assert len(pd.read_parquet(tmp_path / "out" / "cells.parquet")) == 7 * 3
    report = done.outcome.report.read_text(encoding="utf-8")
    assert report.count('<figure class="plot">') == 7
    assert FAILURE in report


def test_one_temperature_and_one_budget_leave_nothing_to_compare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run(write_sweep(tmp_path / "sweep", (0.6,), (4,)), tmp_path / "out", capsys)
    (found,) = done.metrics["settings"].values()
    assert found["best_budget"] == {"0.6": "4 at T = 0.6 (no other)"}
    assert found["auto"] == {}
    assert found["slowdown"] == "No decoder was measured at two temperatures, so no slow-down can be explained."
    assert found["slowdown_parts"] == []
    assert found["beyond_entropy"] is None
    assert done.titles()[-1] == "Tree 4 was not measured at two temperatures, so no change can be split"
