"""07_speed run whole on a toy, and on a record of another run, which it shows without measuring anything."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from ddtree.workbook.params import SpeedParams
from ddtree.workbook.paths import project_root
from ddtree.workbook.records import read_result
from ddtree.workbook.report.html import PLOTLY
from ddtree.workbook.runner import RunOutcome, run_notebook

TINY: dict[str, Any] = {
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
}
FIGURES = 5


def run(out_dir: Path, **values: Any) -> RunOutcome:
    params = SpeedParams.from_mapping({"out_dir": str(out_dir), **values})
    outcome = run_notebook(project_root() / "notebooks" / "07_speed.ipynb", params, out_dir)
    assert outcome.failure == ""
    return outcome


def figures(outcome: RunOutcome) -> list[dict[str, Any]]:
    cells = nbformat.read(outcome.executed, as_version=4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output.get("name") == "stderr"], "no warning reaches the reader"
    return [output["data"][PLOTLY] for output in outputs if PLOTLY in output.get("data", {})]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> RunOutcome:
    return run(tmp_path_factory.mktemp("speed"), **TINY)


def test_it_measures_draws_and_records(measured: RunOutcome, tmp_path: Path) -> None:
    assert len(figures(measured)) == FIGURES
    record = read_result(measured.result)
    assert record["params"] == SpeedParams.from_mapping({**TINY, "out_dir": str(measured.result.parent)}).to_plain()
    metrics = record["metrics"]
    assert {len(metrics[part]) > 0 for part in ("stages", "builders", "verify", "rounds", "chain")} == {True}
    assert "Measured in this process" in measured.report.read_text(encoding="utf-8")


def test_a_record_is_shown_with_the_same_figures(measured: RunOutcome, tmp_path: Path) -> None:
    shown = run(tmp_path, recorded=str(measured.result))
    titles = [[figure["layout"]["title"]["text"] for figure in figures(outcome)] for outcome in (measured, shown)]
    assert titles[0] == titles[1]
    metrics, before = read_result(shown.result)["metrics"], read_result(measured.result)["metrics"]
    recorded = metrics.pop("recorded")
    assert metrics == before
    assert recorded["environment"] == read_result(measured.result)["environment"]
    assert "not measured here" in shown.report.read_text(encoding="utf-8")


def test_without_a_live_model_the_rest_is_shown(tmp_path: Path) -> None:
    outcome = run(tmp_path, **{**TINY, "live_models": [], "batches": [1], "budgets": [4]})
    assert len(figures(outcome)) == FIGURES - 2
