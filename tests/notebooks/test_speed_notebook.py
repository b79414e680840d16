"""07_speed run whole on a toy, and on a record of another run, which it shows without measuring anything."""

from pathlib import Path

import pytest
from ddtree.workbook.records import read_result
from executed import FIGURES, TINY, Executed, Session, execute


@pytest.fixture(scope="module")
def measured(session: Session) -> Executed:
    return session.notebook("07_speed")


def test_it_measures_draws_and_records(measured: Executed) -> None:
    assert len(measured.figures) == FIGURES["07_speed"]
    assert read_result(measured.outcome.result)["params"] == measured.params.to_plain()
    metrics = measured.metrics
    assert {len(metrics[part]) > 0 for part in ("stages", "builders", "verify", "rounds", "chain")} == {True}
    assert "recorded" not in metrics


def test_a_record_is_shown_with_the_same_figures(measured: Executed, tmp_path: Path) -> None:
    shown = execute("07_speed", {"recorded": str(measured.outcome.result)}, tmp_path)
    assert shown.titles == measured.titles
    metrics = shown.metrics
    recorded = metrics.pop("recorded")
    assert metrics == measured.metrics
    assert recorded["environment"] == read_result(measured.outcome.result)["environment"]
    assert "Recorded" in shown.report


@pytest.mark.slow
def test_without_a_live_model_the_rest_is_shown(tmp_path: Path) -> None:
    done = execute("07_speed", {**TINY["07_speed"], "live_models": [], "batches": [1], "budgets": [4]}, tmp_path)
    assert len(done.figures) == FIGURES["07_speed"] - 2
