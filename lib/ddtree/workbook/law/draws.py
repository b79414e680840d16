"""Many verify calls on one tree at once: the reference's walk, each node's arithmetic done a single time.

The shipped verify reads probabilities [calls, q, V]; 100,000 calls with a real vocabulary would be a third of a
terabyte. Here all calls at one node share its running sums (float32, in link order) and its sums over what the children
leave (float64, in order of id). These are the reference's numbers and comparisons, so the same coins give the same
tokens; `replay` puts them through the shipped `verify_tree`, and the two are compared in every proof.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ddtree.draft_tree import DraftTree
from ddtree.retrieve import compile_retrieve
from ddtree.verify import verify_tree
from ddtree.workbook.law.laws import FixedTree

Accept = Callable[[FixedTree, int, np.ndarray], np.ndarray]
Rest = Callable[[FixedTree, int], Tensor]
FinalCoin = Callable[[int, np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True, slots=True)
class Draws:
    """What each of n calls emitted, int64 [n] each."""

    first: np.ndarray  # token
    child: np.ndarray  # child of the root that was accepted, 0 if none
    second: np.ndarray  # token, -1 where no child was accepted
    accepted: np.ndarray  # drafts


def running_sums(fixed: FixedTree, node: int) -> np.ndarray:
    """float32 [children], the target's probability added up in link order."""
    return np.cumsum(fixed.rows[node, fixed.child_tokens(node)].numpy(), dtype=np.float32)


def first_sum_above(fixed: FixedTree, node: int, coins: np.ndarray) -> np.ndarray:
    """Place of the first child whose running sum exceeds the node's coin; a child of probability 0 adds nothing."""
    return np.searchsorted(running_sums(fixed, node), coins[:, node], side="right")


def children_removed(fixed: FixedTree, node: int) -> Tensor:
    """The node's row, float64, without its children; the row itself where that leaves nothing."""
    rest = fixed.rows[node].double()
    rest[fixed.child_tokens(node)] = 0.0
    return rest if rest.sum() > 0 else fixed.rows[node].double()


def the_other_coin(node: int, coins: np.ndarray, final_coins: np.ndarray) -> np.ndarray:
    """The coin that nothing else has read."""
    return final_coins


@dataclass(frozen=True, slots=True)
class Rule:
    """A way to walk: which child a coin accepts, what is left when none, and the coin that draws from it."""

    name: str
    accept: Accept = first_sum_above  # (tree, node, coins [m, q]) -> place among the children, their number if none
    rest: Rest = children_removed  # (tree, node) -> weights float64 [V]
    final_coin: FinalCoin = the_other_coin  # (node, coins [m, q], final coins [m]) -> [m]


TARGET_ONLY = Rule("target-only")


def draw(rule: Rule, fixed: FixedTree, coins: np.ndarray, final_coins: np.ndarray) -> Draws:
    """One call for each row of `coins` float32 [n, q or more] and `final_coins` float32 [n]."""
    n = len(coins)
    at = {0: np.arange(n)}  # node -> calls that have come to it
    first, child, second = np.full(n, -1), np.zeros(n, dtype=np.int64), np.full(n, -1)
    accepted = np.zeros(n, dtype=np.int64)
    for node, children in enumerate(fixed.children):  # a parent stands before its children
        calls = at.pop(node, None)
        if calls is None or not len(calls):
            continue
        depth = fixed.depths[node]
        accepted[calls] = depth
        seen = coins[calls]
        place = rule.accept(fixed, node, seen) if children else np.zeros(len(calls), dtype=np.int64)
        emitted = np.empty(len(calls), dtype=np.int64)
        for position, kid in enumerate(children):
            taken = place == position
            at[kid], emitted[taken] = calls[taken], fixed.tokens[kid]
            if node == 0:
                child[calls[taken]] = kid
        ends = place == len(children)
        last_coins = rule.final_coin(node, seen[ends], final_coins[calls[ends]])
        emitted[ends] = _inverse_cdf(rule.rest(fixed, node), last_coins)
        if depth == 0:
            first[calls] = emitted
        elif depth == 1:
            second[calls] = emitted
    return Draws(first, child, second, accepted)


def replay(
    tree: DraftTree, fixed: FixedTree, coins: np.ndarray, final_coins: np.ndarray, *, backend: str = "auto"
) -> Draws:
    """The same calls through the shipped `verify_tree`; `tree` has one row, and every call gets a copy of it."""
    n, size = len(coins), len(fixed.tokens)
    copies = DraftTree(
        tokens=tree.tokens[:1, :size].repeat(n, 1),
        parents=tree.parents[:1, :size].repeat(n, 1),
        depths=tree.depths[:1, :size].repeat(n, 1),
        node_logws=tree.node_logws[:1, :size].repeat(n, 1),
        sizes=tree.sizes[:1].repeat(n),
        max_depth=tree.max_depth,
    )
    device = tree.tokens.device
    result = verify_tree(
        copies,
        compile_retrieve(copies),
        fixed.rows.to(device).expand(n, -1, -1),
        torch.from_numpy(coins[:, :size].copy()).to(device),
        torch.from_numpy(final_coins).to(device),
        backend=backend,
    )
    predict = result.predict.reshape(n, size).cpu().numpy().astype(np.int64)
    accepted = result.accept_count.cpu().numpy().astype(np.int64)
    path = result.accept_index.cpu().numpy() - np.arange(n)[:, None] * size
    child = np.where(accepted > 0, path[:, 1], 0) if path.shape[1] > 1 else np.zeros(n, dtype=np.int64)
    second = np.where(child > 0, predict[np.arange(n), child], -1)
    return Draws(predict[:, 0], child, second, accepted)


def _inverse_cdf(weights: Tensor, coins: np.ndarray) -> np.ndarray:
    cdf = weights.cumsum(0)
    return torch.searchsorted(cdf, cdf[-1] * torch.from_numpy(coins).double(), right=True).numpy()
