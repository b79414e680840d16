"""04_serving run whole on made-up records: all there is, the least there is, and a folder without any record."""

import re
from pathlib import Path

import pytest
from ddtree.workbook.records import read_result, write_result
from executed import FIGURES, SERVED, TINY, Executed, Session, execute
from serving_record import made_up


@pytest.fixture(scope="module")
def shown(session: Session) -> Executed:
    return session.notebook("04_serving")


def run(recorded: Path, out_dir: Path) -> Executed:
    return execute("04_serving", {**TINY["04_serving"], "recorded": str(recorded)}, out_dir)


def test_a_record_is_shown_and_kept_as_it_was(shown: Executed) -> None:
    assert len(shown.figures) == FIGURES["04_serving"]
    before = made_up(SERVED, jitter=0.05)
    assert {part: shown.metrics[part] for part in before} == before
    assert shown.metrics["recorded"]["params"] == SERVED.to_plain()
    assert {row["verdict"] for row in shown.metrics["best"]} <= {"reached", "reached, interval below", "missed"}
    assert "Recorded" in shown.report
    assert "emulated cost" in shown.report


@pytest.mark.slow
def test_the_result_of_a_shown_record_can_be_shown_again(shown: Executed, tmp_path: Path) -> None:
    again = run(shown.outcome.result, tmp_path)
    assert again.titles == shown.titles
    first, second = (read_result(run.outcome.result)["metrics"]["recorded"] for run in (shown, again))
    assert first == second


def test_what_was_not_measured_is_said_in_place_of_a_figure(tmp_path: Path) -> None:
    metrics = made_up(SERVED)
    metrics |= {part: [] for part in ("alone", "histograms", "greedy", "depth_is_free", "diversity")}
    write_result(tmp_path / "made", notebook="04_serving", params=SERVED, metrics=metrics, wall_s=1.0)
    done = run(tmp_path / "made" / "result.json", tmp_path / "shown")
    assert len(done.figures) == 1, "tokens a second of the batches"
    for absent in ("plain engine", "rounds", "greedy text"):
        assert re.search(rf"\bno {absent}", done.report, re.IGNORECASE), absent
