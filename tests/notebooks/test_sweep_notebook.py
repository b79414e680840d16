"""05_sweep run whole on made-up sweeps: partial, and too small to compare anything."""

from pathlib import Path

import pandas as pd
from executed import FAILED, FIGURES, NOT_RUN, TINY, Session, execute
from sweep_folder import FAILURE, write_sweep
from wording import tells


def test_a_partial_sweep_is_read_as_far_as_it_got(session: Session) -> None:
    done = session.notebook("05_sweep")
    metrics = done.metrics
    assert metrics["cells"] == {"measured": 7, "in part": 0, "failed": 1, "unfinished": 0, "not run": 1}
    assert metrics["missing"] == {NOT_RUN: "not run", FAILED: FAILURE}
    assert metrics["progress"] in done.printed
    found = metrics["settings"]["every run"]
    assert len(found["points"]) == 3 * 5 - 2
    assert set(found["best_budget"]) == set(found["auto"]) == {"0", "0.6", "1"}
    assert found["slowdown"] in done.printed
    assert tells(found["slowdown"], "T = 0 T = 1 %")
    assert found["beyond_entropy"]["sentence"] in done.printed
    assert len(pd.read_parquet(done.outcome.result.parent / "cells.parquet")) == 7 * 3
    assert len(done.figures) == done.report.count('<figure class="plot">') == FIGURES["05_sweep"]
    assert FAILURE in done.report


def test_one_temperature_and_one_budget_leave_nothing_to_compare(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "sweep", (0.6,), (4,))
    done = execute("05_sweep", {**TINY["05_sweep"], "sweep_dir": str(sweep)}, tmp_path / "out")
    (found,) = done.metrics["settings"].values()
    assert list(found["best_budget"]) == ["0.6"]
    assert tells(found["best_budget"]["0.6"], "4 T = 0.6")
    assert found["auto"] == {}
    assert not tells(found["slowdown"], "T ="), "one temperature, so no slow-down"
    assert found["slowdown_parts"] == []
    assert found["beyond_entropy"] is None
    assert tells(done.titles[-1], "4")
