"""Runs the exactness suite on one snapshot of a live model: every temperature, filter and tree, and negative controls.

The shipped rule must pass every test; each negative control, a rule that is wrong on purpose, must fail one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product

import numpy as np
import pandas as pd

from ddtree.sampling import SamplingParams, step_coins, target_probs
from ddtree.workbook.exactness.distributions import (
    FILTERS_LEFT_OUT,
    NEGATIVE_CONTROLS,
    TARGET_ONLY,
    Draws,
    ExactDistributions,
    FixedTree,
    Rule,
    draw,
    exact_distributions,
    replay,
)
from ddtree.workbook.exactness.goodness_of_fit import ALPHA, Cells, fit, holm, pool
from ddtree.workbook.records import rows_of
from ddtree.workbook.tree.snapshot import DecodeSnapshot, Round

TEMPERATURES = (0.3, 0.6, 1.0, 1.5)
FILTERS = {"none": (0, 1.0), "top-k 20": (20, 1.0), "top-p 0.9": (0, 0.9), "both": (20, 0.9)}  # name: top_k, top_p
BUDGETS = ((16, 4), (32, 8))
DISTRIBUTIONS = ("first token", "second token", "drafts accepted")
REPLAYED = 100  # calls of each setting that also go through the shipped verify
LEAST_DRAWS = 100


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """What was tested and the outcome."""

    tests: pd.DataFrame  # one row a test: rule, temperature, filter, tree, law, the fields of `Fit`, p_holm, rejected
    cells: pd.DataFrame  # one row a cell of the first token's tests: rule, temperature, filter, tree, expected, seen
    replayed: int  # calls repeated through the shipped verify
    differing: int  # of those, calls that emitted or accepted anything else

    @property
    def shipped(self) -> pd.DataFrame:
        """The tests of the rule that ships."""
        return self.tests[self.tests["rule"] == TARGET_ONLY.name]

    @property
    def negative_controls(self) -> pd.DataFrame:
        """One row a control: its strongest test, and whether that rejects it after Holm's correction."""
        others = self.tests[self.tests["rule"] != TARGET_ONLY.name]
        strongest = others.sort_values(["p_holm", "tv"], ascending=[True, False]).groupby("rule", sort=False).head(1)
        order = {rule.name: place for place, rule in enumerate(NEGATIVE_CONTROLS)}
        return strongest.sort_values("rule", key=lambda names: names.map(order)).reset_index(drop=True)


def run_suite(snapshot: DecodeSnapshot, *, draws: int, seed: int = 0, backend: str = "auto") -> SuiteResult:
    """Sample each setting of the table `draws` times and test three distributions of each.

    Uses the first row of `snapshot`; the target scores its trees once. Coins are the decode loop's own stream, one
    step of it for each temperature and filter. Negative controls run at the highest temperature on the tree of 16
    nodes. Raises ValueError for fewer than 100 draws.
    """
    if draws < LEAST_DRAWS:
        raise ValueError(f"draws is {draws}; a goodness-of-fit test needs at least {LEAST_DRAWS}.")
    rounds = _rounds(snapshot)
    seeds = range(seed, seed + draws)
    width = max(round_.tree.width for round_ in rounds.values())
    rows, cells = [], []
    replayed = differing = 0
    for step, (temperature, filter_name) in enumerate(product(TEMPERATURES, FILTERS)):
        coins, final_coins = (drawn.numpy() for drawn in step_coins(seeds, [step] * draws, width))
        for label, round_ in rounds.items():
            fixed = _fixed(round_, temperature, filter_name)
            exact = exact_distributions(fixed)
            for rule, given in _rules(round_, fixed, temperature, filter_name, label):
                setting = {"rule": rule.name, "temperature": temperature, "filter": filter_name, "tree": label}
                drawn = draw(rule, given, coins, final_coins)
                grouped = _grouped(drawn, exact)
                rows += [setting | {"law": name} | asdict(fit(groups)) for name, groups in grouped.items()]
                (first,) = grouped["first token"]
                cells.append(pd.DataFrame({**setting, "expected": first.expected, "seen": first.seen}))
                if rule is TARGET_ONLY:
                    again = replay(round_.tree, fixed, coins[:REPLAYED], final_coins[:REPLAYED], backend=backend)
                    replayed += len(again.first)
                    differing += _differing(drawn, again)
    tests = pd.DataFrame(rows)
    tests["p_holm"] = holm(tests["p"].tolist())
    tests["rejected"] = tests["p_holm"] < ALPHA
    return SuiteResult(tests, pd.concat(cells, ignore_index=True), replayed, differing)


def metrics_of(result: SuiteResult) -> dict[str, object]:
    """The entry of result.json: counts of tests and rejections, and every test."""
    shipped, controls = result.shipped, result.negative_controls
    return {
        "tested": len(shipped),
        "draws_of_each": int(shipped["draws"].max()),
        "of_one_cell": int((shipped["df"] == 0).sum()),  # only an impossible draw could fail these
        "rejected": int(shipped["rejected"].sum()),
        "smallest_p_after_holm": float(shipped["p_holm"].min()),
        "worst_total_variation": float(shipped["tv"].max()),
        "controls_run": len(controls),
        "controls_rejected": int(controls["rejected"].sum()),
        "replayed": result.replayed,
        "replays_differing": result.differing,
        "rows": rows_of(result.tests),
    }


def _rounds(snapshot: DecodeSnapshot) -> dict[str, Round]:
    """The snapshot's trees with the target's logits, by name; nothing is drawn from them."""
    shapes = {"chain": (snapshot.pair.drafter.depth, 1)} | {f"tree {b}/{cap}": (b, cap) for b, cap in BUDGETS}
    greedy = SamplingParams(0.0)
    return {label: snapshot.run_round(budget=b, topk_cap=cap, sampling=greedy) for label, (b, cap) in shapes.items()}


def _fixed(round_: Round, temperature: float, filter_name: str) -> FixedTree:
    size = int(round_.tree.sizes[0])
    top_k, top_p = FILTERS[filter_name]
    probs = target_probs(round_.logits[:1, :size], temperature=temperature, top_k=top_k, top_p=top_p)
    return FixedTree.of(round_.tree, round_.tables, probs)


def _rules(
    round_: Round, fixed: FixedTree, temperature: float, filter_name: str, tree: str
) -> Iterator[tuple[Rule, FixedTree]]:
    """The shipped rule; at one setting each, the negative controls, with the rows that they read."""
    yield TARGET_ONLY, fixed
    if temperature != max(TEMPERATURES) or tree != "tree {}/{}".format(*BUDGETS[0]):
        return
    for control in NEGATIVE_CONTROLS:
        unfiltered = control.name == FILTERS_LEFT_OUT
        if filter_name == ("both" if unfiltered else "none"):
            yield control, _fixed(round_, temperature, "none") if unfiltered else fixed


def _grouped(drawn: Draws, exact: ExactDistributions) -> dict[str, list[Cells]]:
    """Counts against the exact distributions, by name of the test; the second token is tested within each first one."""

    def counts(values: np.ndarray, probs: np.ndarray) -> Cells:
        return pool(np.bincount(values, minlength=len(probs)), probs)

    second = [counts(drawn.second[drawn.child == child], probs) for child, probs in exact.second.items()]
    groups = [counts(drawn.first, exact.first)], second, [counts(drawn.accepted, exact.accepted)]
    return dict(zip(DISTRIBUTIONS, groups, strict=True))


def _differing(drawn: Draws, again: Draws) -> int:
    n = len(again.first)
    same = [getattr(drawn, name)[:n] == getattr(again, name) for name in ("first", "child", "second", "accepted")]
    return int((~np.logical_and.reduce(same)).sum())
