"""04_serving run whole on made-up records: all there is, the least there is, and a folder without any record."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from ddtree.workbook.params import ServingParams
from ddtree.workbook.paths import project_root
from ddtree.workbook.records import read_result, write_result
from ddtree.workbook.report.html import PLOTLY
from ddtree.workbook.runner import RunOutcome, run_notebook
from serving_record import made_up, write_made_up

RECORDED = ServingParams.from_mapping({"extra_layers": [0, 100], "budgets": [16, 32]})
FIGURES = 7


def run(recorded: Path, out_dir: Path) -> RunOutcome:
    values = {"recorded": str(recorded), "out_dir": str(out_dir), "threads": 1, "bootstrap": 100}
    params = ServingParams.from_mapping(values)
    outcome = run_notebook(project_root() / "notebooks" / "04_serving.ipynb", params, out_dir)
    assert outcome.failure == ""
    return outcome


def figures(outcome: RunOutcome) -> list[dict[str, Any]]:
    cells = nbformat.read(outcome.executed, as_version=4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output.get("name") == "stderr"], "no warning reaches the reader"
    return [output["data"][PLOTLY] for output in outputs if PLOTLY in output.get("data", {})]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> RunOutcome:
    folder = tmp_path_factory.mktemp("serving")
    return run(write_made_up(folder / "made", RECORDED, jitter=0.05), folder / "shown")


def test_a_record_is_shown_and_kept_as_it_was(shown: RunOutcome) -> None:
    assert len(figures(shown)) == FIGURES
    metrics = read_result(shown.result)["metrics"]
    before = made_up(RECORDED, jitter=0.05)
    assert {part: metrics[part] for part in before} == before
    assert metrics["recorded"]["params"] == RECORDED.to_plain()
    assert {row["verdict"] for row in metrics["best"]} <= {"reached", "reached, interval below", "missed"}
    report = shown.report.read_text(encoding="utf-8")
    assert "nothing was" in report
    assert "emulated cost" in report


def test_the_result_of_a_shown_record_can_be_shown_again(shown: RunOutcome, tmp_path: Path) -> None:
    again = run(shown.result, tmp_path)
    titles = [[figure["layout"]["title"]["text"] for figure in figures(outcome)] for outcome in (shown, again)]
    assert titles[0] == titles[1]
    first, second = (read_result(outcome.result)["metrics"]["recorded"] for outcome in (shown, again))
    assert first == second


def test_what_was_not_measured_is_said_in_place_of_a_figure(tmp_path: Path) -> None:
    metrics = made_up(RECORDED)
    metrics |= {part: [] for part in ("alone", "histograms", "greedy", "depth_is_free", "diversity")}
    write_result(tmp_path / "made", notebook="04_serving", params=RECORDED, metrics=metrics, wall_s=1.0)
    outcome = run(tmp_path / "made" / "result.json", tmp_path / "shown")
    assert len(figures(outcome)) == 1, "tokens a second of the batches"
    report = outcome.report.read_text(encoding="utf-8")
    for sentence in ("no plain engine was measured alone", "no rounds were measured alone", "No greedy text"):
        assert sentence in report
