"""The proof on a tiny model: what ships passes every law, every control is rejected, and the record says so."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from ddtree.workbook.law import proof as proof_module
from ddtree.workbook.law.controls import CONTROLS
from ddtree.workbook.law.draws import TARGET_ONLY, Rule
from ddtree.workbook.law.proof import FILTERS, LAWS, TEMPERATURES, Proof, metrics_of, prove
from ddtree.workbook.scene import Scene, set_scene
from tiny_pair import tiny_pair
from wording import names

DRAWS = 2000
TREES = ["chain", "tree 16/4", "tree 32/8"]
WRONG_BY_RULE = [rule for rule in CONTROLS if replace(rule, name=TARGET_ONLY.name) != TARGET_ONLY]  # the rest: by rows


@pytest.fixture(scope="module")
def scene() -> Scene:
    return set_scene(tiny_pair(40), "5 1 3 2 7", skip_tokens=6, seeds=[3])


@pytest.fixture(scope="module")
def proof(scene: Scene) -> Proof:
    return prove(scene, draws=DRAWS, seed=0)


def test_every_law_of_the_table_is_tested(proof: Proof) -> None:
    keys = ["temperature", "filter", "tree", "law"]
    found = set(proof.ours[keys].itertuples(index=False, name=None))
    assert found == {(t, f, tree, law) for t in TEMPERATURES for f in FILTERS for tree in TREES for law in LAWS}
    assert len(proof.ours) == len(found) == 144
    assert len(proof.laws) == 144 + 3 * len(CONTROLS)
    whole = proof.ours[proof.ours["law"] != "second token"]
    assert (whole["draws"] == DRAWS).all()


def test_what_ships_passes(proof: Proof) -> None:
    assert not proof.ours["rejected"].any()
    assert (proof.ours["impossible"] == 0).all()
    assert (proof.ours["tv_lo"] <= proof.ours["tv"]).all()
    p = proof.ours.loc[proof.ours["df"] > 0, "p"]
    assert len(p) > 100
    assert (p < 0.05).mean() < 0.15, "the laws of one setting share coins, but few may look odd before correction"


def test_every_control_is_rejected(proof: Proof) -> None:
    assert proof.controls["rule"].tolist() == [rule.name for rule in CONTROLS]
    assert proof.controls["rejected"].all()
    assert (proof.controls["tv_lo"] > 0).all()


def test_draws_are_those_of_the_shipped_verify(proof: Proof) -> None:
    assert proof.replayed == 100 * 4 * 4 * 3
    assert proof.differing == 0


@pytest.mark.parametrize("control", WRONG_BY_RULE, ids=lambda rule: rule.name)
def test_a_wrong_rule_in_the_place_of_ours_fails_the_proof(
    scene: Scene, control: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way: were the shipped rule like this control, the table would say so."""
    monkeypatch.setattr(proof_module, "TARGET_ONLY", control)
    monkeypatch.setattr(proof_module, "CONTROLS", ())
    monkeypatch.setattr(proof_module, "TEMPERATURES", (1.5,))
    spoiled = prove(scene, draws=DRAWS, seed=0)
    assert spoiled.laws["rejected"].any()
    assert spoiled.differing > 0


def test_cells_are_the_first_tokens(proof: Proof) -> None:
    ours = proof.cells[proof.cells["rule"] == TARGET_ONLY.name]
    sums = ours.groupby(["temperature", "filter", "tree"])[["expected", "seen"]].sum()
    assert len(sums) == 48
    assert sums["expected"].to_numpy() == pytest.approx(np.full(48, DRAWS))
    assert sums["seen"].to_numpy() == pytest.approx(np.full(48, DRAWS))


def test_seed_decides_and_matters(scene: Scene, proof: Proof, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof_module, "TEMPERATURES", (0.3,))
    again, other = prove(scene, draws=200, seed=4), prove(scene, draws=200, seed=400)
    pd.testing.assert_frame_equal(again.laws, prove(scene, draws=200, seed=4).laws)
    assert not again.laws["statistic"].equals(other.laws["statistic"])


def test_record(proof: Proof) -> None:
    metrics = metrics_of(proof)
    rows = metrics.pop("rows")
    assert isinstance(rows, list)
    assert len(rows) == len(proof.laws)
    assert metrics == {
        "tested": 144,
        "draws_of_each": DRAWS,
        "of_one_cell": int((proof.ours["df"] == 0).sum()),
        "rejected": 0,
        "smallest_p_after_holm": proof.ours["p_holm"].min(),
        "worst_total_variation": proof.ours["tv"].max(),
        "controls_run": 5,
        "controls_rejected": 5,
        "replayed": 4800,
        "replays_differing": 0,
    }


def test_too_few_draws_are_refused(scene: Scene) -> None:
    with pytest.raises(ValueError, match=names("draws 99")):
        prove(scene, draws=99)
