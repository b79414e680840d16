"""The proof over a table: every law at every temperature, filter and tree of one scene, and rules that must fail it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from ddtree.sampling import SamplingParams, step_coins, target_probs
from ddtree.workbook.exactness.distributions import (
    CONTROLS,
    FILTERS_LEFT_OUT,
    TARGET_ONLY,
    Draws,
    ExactLaw,
    FixedTree,
    Rule,
    draw,
    exact_law,
    replay,
)
from ddtree.workbook.exactness.goodness_of_fit import ALPHA, Cells, fit, holm, pool
from ddtree.workbook.records import rows_of
from ddtree.workbook.tree.snapshot import Round, Scene

TEMPERATURES = (0.3, 0.6, 1.0, 1.5)
FILTERS = {"none": (0, 1.0), "top-k 20": (20, 1.0), "top-p 0.9": (0, 0.9), "both": (20, 0.9)}  # name: top_k, top_p
BUDGETS = ((16, 4), (32, 8))
LAWS = ("first token", "second token", "drafts accepted")
REPLAYED = 100  # calls of each setting that also go through the shipped verify


@dataclass(frozen=True, slots=True)
class Proof:
    """What was tested and how it came out."""

    laws: pd.DataFrame  # one row a test: rule, temperature, filter, tree, law, the fields of `Fit`, p_holm, rejected
    cells: pd.DataFrame  # one row a cell of the first token's tests: rule, temperature, filter, tree, expected, seen
    replayed: int  # calls repeated through the shipped verify
    differing: int  # of those, calls that emitted or accepted anything else

    @property
    def ours(self) -> pd.DataFrame:
        """The tests of the rule that ships."""
        return self.laws[self.laws["rule"] == TARGET_ONLY.name]

    @property
    def controls(self) -> pd.DataFrame:
        """One row a control: its strongest test, and whether that rejects it after Holm's correction."""
        others = self.laws[self.laws["rule"] != TARGET_ONLY.name]
        strongest = others.sort_values(["p_holm", "tv"], ascending=[True, False]).groupby("rule", sort=False).head(1)
        order = {rule.name: place for place, rule in enumerate(CONTROLS)}
        return strongest.sort_values("rule", key=lambda names: names.map(order)).reset_index(drop=True)


@dataclass(frozen=True, slots=True)
class _Setting:
    rule: Rule
    temperature: float
    filter: str
    tree: str

    @property
    def keys(self) -> dict[str, object]:
        return {"rule": self.rule.name, "temperature": self.temperature, "filter": self.filter, "tree": self.tree}


def prove(scene: Scene, *, draws: int, seed: int = 0, backend: str = "auto") -> Proof:
    """Throw `draws` sets of coins at every setting of the table and test three laws of each.

    The first row of `scene` is used; its trees are scored by the target once. Coins are the decode loop's own stream,
    one step of it for each temperature and filter. Controls run at the highest temperature on the tree of 16 nodes.
    Raises ValueError for fewer than 100 draws.
    """
    if draws < 100:
        raise ValueError(f"draws is {draws}; a test of a law needs at least 100.")
    rounds = _rounds(scene)
    seeds = range(seed, seed + draws)
    width = max(round_.tree.width for round_ in rounds.values())
    rows, cells = [], []
    replayed = differing = 0
    for step, (temperature, name) in enumerate((t, f) for t in TEMPERATURES for f in FILTERS):
        node_coins, last_coins = step_coins(seeds, [step] * draws, width)
        coins, final_coins = node_coins.numpy(), last_coins.numpy()
        for label, round_ in rounds.items():
            fixed = _fixed(round_, temperature, name)
            law = exact_law(fixed)
            for rule, walked in _rules(round_, fixed, temperature, name, label):
                setting = _Setting(rule, temperature, name, label)
                drawn = draw(rule, walked, coins, final_coins)
                tests = _tests(drawn, law, fixed)
                rows += [setting.keys | {"law": which} | asdict(fit(groups)) for which, groups in tests.items()]
                first = tests["first token"][0]
                cells.append(pd.DataFrame({**setting.keys, "expected": first.expected, "seen": first.seen}))
                if rule is TARGET_ONLY:
                    again = replay(round_.tree, fixed, coins[:REPLAYED], final_coins[:REPLAYED], backend=backend)
                    replayed += len(again.first)
                    differing += _differing(drawn, again)
    laws = pd.DataFrame(rows)
    laws["p_holm"] = holm(laws["p"].tolist())
    laws["rejected"] = laws["p_holm"] < ALPHA
    return Proof(laws, pd.concat(cells, ignore_index=True), replayed, differing)


def metrics_of(proof: Proof) -> dict[str, object]:
    """What result.json says of a proof: the counts a reader asks for, and every test."""
    ours, controls = proof.ours, proof.controls
    return {
        "tested": len(ours),
        "draws_of_each": int(ours["draws"].max()),
        "of_one_cell": int((ours["df"] == 0).sum()),  # nothing to weigh: only an impossible draw could fail these
        "rejected": int(ours["rejected"].sum()),
        "smallest_p_after_holm": float(ours["p_holm"].min()),
        "worst_total_variation": float(ours["tv"].max()),
        "controls_run": len(controls),
        "controls_rejected": int(controls["rejected"].sum()),
        "replayed": proof.replayed,
        "replays_differing": proof.differing,
        "rows": rows_of(proof.laws),
    }


def _rounds(scene: Scene) -> dict[str, Round]:
    """The scene's trees with the target's logits, by name; nothing is drawn from them."""
    shapes = {"chain": (scene.pair.drafter.depth, 1)} | {f"tree {b}/{cap}": (b, cap) for b, cap in BUDGETS}
    greedy = SamplingParams(0.0)
    return {label: scene.play(budget=b, topk_cap=cap, sampling=greedy) for label, (b, cap) in shapes.items()}


def _fixed(round_: Round, temperature: float, filter_name: str) -> FixedTree:
    size = int(round_.tree.sizes[0])
    top_k, top_p = FILTERS[filter_name]
    probs = target_probs(round_.logits[:1, :size], temperature=temperature, top_k=top_k, top_p=top_p)
    return FixedTree.of(round_.tree, round_.tables, probs)


def _rules(
    round_: Round, fixed: FixedTree, temperature: float, filter_name: str, tree: str
) -> Iterator[tuple[Rule, FixedTree]]:
    """The rule that ships; at one setting each, the controls, with the rows that they walk on."""
    yield TARGET_ONLY, fixed
    if temperature != max(TEMPERATURES) or tree != "tree {}/{}".format(*BUDGETS[0]):
        return
    for control in CONTROLS:
        unfiltered = control.name == FILTERS_LEFT_OUT
        if filter_name == ("both" if unfiltered else "none"):
            yield control, _fixed(round_, temperature, "none") if unfiltered else fixed


def _tests(drawn: Draws, law: ExactLaw, fixed: FixedTree) -> dict[str, list[Cells]]:
    """Counts against the law, by name of the test; the second token is judged within each first one."""
    vocab = len(law.first)
    second = [
        pool(np.bincount(drawn.second[drawn.child == child], minlength=vocab), probs)
        for child, probs in law.second.items()
    ]
    return {
        "first token": [pool(np.bincount(drawn.first, minlength=vocab), law.first)],
        "second token": second,
        "drafts accepted": [pool(np.bincount(drawn.accepted, minlength=len(law.accepted)), law.accepted)],
    }


def _differing(drawn: Draws, again: Draws) -> int:
    n = len(again.first)
    same = [getattr(drawn, name)[:n] == getattr(again, name) for name in ("first", "child", "second", "accepted")]
    return int((~np.logical_and.reduce(same)).sum())
