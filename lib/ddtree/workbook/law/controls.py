"""Rules that look right and are not: a test of the law that does not reject them proves nothing."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from ddtree.workbook.law.draws import Rule, running_sums
from ddtree.workbook.law.laws import FixedTree

FILTERS_LEFT_OUT = "filters left out"  # the right rule on rows that were not filtered


def _ratio(fixed: FixedTree, node: int, coins: np.ndarray) -> np.ndarray:
    """min(1, p/q) with a coin for each child: right for sampled drafts, but these are the drafter's favourites."""
    children = fixed.children[node]
    p = fixed.rows[node, fixed.child_tokens(node)].numpy()
    q = np.array([fixed.draft_probs[child] for child in children])
    met = coins[:, children] < p / q
    return np.where(met.any(axis=1), met.argmax(axis=1), len(children))


def _counted_twice(fixed: FixedTree, node: int, coins: np.ndarray) -> np.ndarray:
    return np.searchsorted(2 * running_sums(fixed, node), coins[:, node], side="right")


def _whole_row(fixed: FixedTree, node: int) -> Tensor:
    return fixed.rows[node].double()


def _same_coin(node: int, coins: np.ndarray, final_coins: np.ndarray) -> np.ndarray:
    return coins[:, node]


CONTROLS = (
    Rule("min(1, p/q) on favourites", accept=_ratio),
    Rule("one coin for both draws", final_coin=_same_coin),
    Rule("rejected children left in", rest=_whole_row),
    Rule(FILTERS_LEFT_OUT),
    Rule("siblings counted twice", accept=_counted_twice),
)
