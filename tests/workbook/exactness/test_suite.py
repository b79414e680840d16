"""The suite on a tiny model: the shipped rule passes every test, every negative control is rejected and recorded."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from ddtree.workbook.exactness import suite as suite_module
from ddtree.workbook.exactness.distributions import NEGATIVE_CONTROLS, TARGET_ONLY, Rule
from ddtree.workbook.exactness.suite import DISTRIBUTIONS, FILTERS, TEMPERATURES, SuiteResult, metrics_of, run_suite
from ddtree.workbook.tree.snapshot import DecodeSnapshot, snapshot_at
from tiny_pair import tiny_pair

DRAWS = 2000
TREES = ["chain", "tree 16/4", "tree 32/8"]
# The other control is wrong by its rows.
WRONG_BY_RULE = [rule for rule in NEGATIVE_CONTROLS if replace(rule, name=TARGET_ONLY.name) != TARGET_ONLY]


@pytest.fixture(scope="module")
def snapshot() -> DecodeSnapshot:
    return snapshot_at(tiny_pair(40), "5 1 3 2 7", skip_tokens=6, seeds=[3])


@pytest.fixture(scope="module")
def result(snapshot: DecodeSnapshot) -> SuiteResult:
    return run_suite(snapshot, draws=DRAWS, seed=0)


def test_every_distribution_of_the_table_is_tested(result: SuiteResult) -> None:
    keys = ["temperature", "filter", "tree", "law"]
    found = set(result.shipped[keys].itertuples(index=False, name=None))
    assert found == set(product(TEMPERATURES, FILTERS, TREES, DISTRIBUTIONS))
    assert len(result.shipped) == len(found) == 144
    assert len(result.tests) == 144 + 3 * len(NEGATIVE_CONTROLS)
    whole = result.shipped[result.shipped["law"] != "second token"]
    assert (whole["draws"] == DRAWS).all()


def test_what_ships_passes(result: SuiteResult) -> None:
    assert not result.shipped["rejected"].any()
    assert (result.shipped["impossible"] == 0).all()
    assert (result.shipped["tv_lo"] <= result.shipped["tv"]).all()
    p = result.shipped.loc[result.shipped["df"] > 0, "p"]
    assert len(p) > 100
    assert (p < 0.05).mean() < 0.15, "the tests of one setting share coins, but few may look odd before correction"


def test_every_control_is_rejected(result: SuiteResult) -> None:
    assert result.negative_controls["rule"].tolist() == [rule.name for rule in NEGATIVE_CONTROLS]
    assert result.negative_controls["rejected"].all()
    assert (result.negative_controls["tv_lo"] > 0).all()


def test_draws_are_those_of_the_shipped_verify(result: SuiteResult) -> None:
    assert result.replayed == 100 * 4 * 4 * 3
    assert result.differing == 0


@pytest.mark.parametrize("control", WRONG_BY_RULE, ids=lambda rule: rule.name)
def test_a_wrong_rule_in_the_place_of_ours_fails_the_suite(
    snapshot: DecodeSnapshot, control: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way: were the shipped rule like this control, the table would say so."""
    monkeypatch.setattr(suite_module, "TARGET_ONLY", control)
    monkeypatch.setattr(suite_module, "NEGATIVE_CONTROLS", ())
    monkeypatch.setattr(suite_module, "TEMPERATURES", (1.5,))
    spoiled = run_suite(snapshot, draws=DRAWS, seed=0)
    assert spoiled.tests["rejected"].any()
    assert spoiled.differing > 0


def test_cells_are_the_first_tokens(result: SuiteResult) -> None:
    ours = result.cells[result.cells["rule"] == TARGET_ONLY.name]
    sums = ours.groupby(["temperature", "filter", "tree"])[["expected", "seen"]].sum()
    assert len(sums) == 48
    assert sums["expected"].to_numpy() == pytest.approx(np.full(48, DRAWS))
    assert sums["seen"].to_numpy() == pytest.approx(np.full(48, DRAWS))


def test_seed_decides_and_matters(snapshot: DecodeSnapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite_module, "TEMPERATURES", (0.3,))
    again, other = run_suite(snapshot, draws=200, seed=4), run_suite(snapshot, draws=200, seed=400)
    pd.testing.assert_frame_equal(again.tests, run_suite(snapshot, draws=200, seed=4).tests)
    assert not again.tests["statistic"].equals(other.tests["statistic"])


def test_record(result: SuiteResult) -> None:
    metrics = metrics_of(result)
    rows = metrics.pop("rows")
    assert isinstance(rows, list)
    assert len(rows) == len(result.tests)
    assert metrics == {
        "tested": 144,
        "draws_of_each": DRAWS,
        "of_one_cell": int((result.shipped["df"] == 0).sum()),
        "rejected": 0,
        "smallest_p_after_holm": result.shipped["p_holm"].min(),
        "worst_total_variation": result.shipped["tv"].max(),
        "controls_run": 5,
        "controls_rejected": 5,
        "replayed": 4800,
        "replays_differing": 0,
    }


def test_too_few_draws_are_refused(snapshot: DecodeSnapshot) -> None:
    with pytest.raises(ValueError, match="draws is 99"):
        run_suite(snapshot, draws=99)
