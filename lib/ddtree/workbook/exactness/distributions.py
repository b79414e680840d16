"""Computes the exact distributions of one verify call, draws from it in bulk, and holds wrong rules for comparison.

The shipped verify reads probabilities [calls, q, V]; 100,000 calls with a real vocabulary would take a third of a
terabyte. Here all calls at one node share its running sums (float32, in link order) and the cumulative sums of its
residual (float64, by token id). These are the reference's numbers and comparisons, so the same coins give the same
tokens; `replay` passes them to the shipped `verify_tree`, and `run_suite` compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ddtree.retrieve import RetrieveTables, compile_retrieve
from ddtree.tree import DraftTree
from ddtree.verify import verify_tree


@dataclass(frozen=True, slots=True)
class FixedTree:
    """One tree and one probability row for each of its nodes; only the coins change from call to call."""

    tokens: list[int]  # by node, the root first
    children: list[list[int]]  # by node, in link order
    depths: list[int]
    draft_probs: list[float]  # of a node given its parent, by the drafter; 1 at the root
    rows: Tensor  # float32 [nodes, V], on the CPU, as `target_probs` gives them

    @classmethod
    def of(cls, tree: DraftTree, tables: RetrieveTables, probs: Tensor, row: int = 0) -> FixedTree:
        """Row `row` of a batch without its padding; `probs` is float32 [bs, q, V]."""
        size = int(tree.sizes[row])
        parents, logws = tree.parents[row].tolist(), tree.node_logws[row].double()
        first, following = tables.next_token[row].tolist(), tables.next_sibling[row].tolist()
        children: list[list[int]] = [[] for _ in range(size)]
        for node, child in enumerate(first[:size]):
            while child != -1:
                children[node].append(child)
                child = following[child]
        return cls(
            tokens=tree.tokens[row, :size].tolist(),
            children=children,
            depths=tree.depths[row, :size].tolist(),
            draft_probs=[1.0, *(float((logws[node] - logws[parents[node]]).exp()) for node in range(1, size))],
            rows=probs[row, :size].cpu(),
        )

    def child_tokens(self, node: int) -> list[int]:
        """Tokens of a node's children, in link order."""
        return [self.tokens[child] for child in self.children[node]]


@dataclass(frozen=True, slots=True)
class ExactDistributions:
    """Probabilities of one verify call's outcomes, float64, each distribution summing to 1."""

    first: np.ndarray  # [V], the first token emitted
    second: dict[int, np.ndarray]  # by child of the root: [V], the second token once that child is accepted
    accepted: np.ndarray  # [depth + 1], the number of drafts accepted


def exact_distributions(fixed: FixedTree) -> ExactDistributions:
    """The outcomes of lossless sampling: the token after a node is distributed as that node's row.

    So a child is accepted with the probability of reaching its parent times its own, and a call ends at a node with
    the probability of reaching it times what its row gives to tokens other than its children.
    """
    rows = torch.nn.functional.normalize(fixed.rows.double(), p=1, dim=1).numpy()
    reach = np.zeros(len(fixed.tokens))
    reach[0] = 1.0
    accepted = np.zeros(max(fixed.depths) + 1)
    for node, children in enumerate(fixed.children):  # parents come before their children
        shares = rows[node, fixed.child_tokens(node)]
        reach[children] = reach[node] * shares
        accepted[fixed.depths[node]] += reach[node] * max(0.0, 1.0 - shares.sum())
    second = {child: rows[child] for child in fixed.children[0]}
    return ExactDistributions(first=rows[0], second=second, accepted=accepted / accepted.sum())


def running_sums(fixed: FixedTree, node: int) -> np.ndarray:
    """float32 [children], the target's probability added up in link order."""
    return np.cumsum(fixed.rows[node, fixed.child_tokens(node)].numpy(), dtype=np.float32)


def first_sum_above(fixed: FixedTree, node: int, coins: np.ndarray) -> np.ndarray:
    """Place of the first child whose running sum exceeds the node's coin; a child of probability 0 adds nothing."""
    return np.searchsorted(running_sums(fixed, node), coins[:, node], side="right")


def residual(fixed: FixedTree, node: int) -> Tensor:
    """The node's row, float64, without its children; the row itself where that leaves nothing."""
    rest = fixed.rows[node].double()
    rest[fixed.child_tokens(node)] = 0.0
    return rest if rest.sum() > 0 else fixed.rows[node].double()


@dataclass(frozen=True, slots=True)
class Rule:
    """A sampling rule: which child a coin accepts, the weights if none is, and the coin that draws from them."""

    name: str
    # (tree, node, coins [m, q]) -> place among the node's children, their number if none is accepted
    accept: Callable[[FixedTree, int, np.ndarray], np.ndarray] = first_sum_above
    rest: Callable[[FixedTree, int], Tensor] = residual  # (tree, node) -> weights float64 [V]
    # (node, coins [m, q], final coins [m]) -> [m]; by default the coin that no acceptance has read
    final_coin: Callable[[int, np.ndarray, np.ndarray], np.ndarray] = lambda node, coins, final_coins: final_coins


def _accept_by_ratio(fixed: FixedTree, node: int, coins: np.ndarray) -> np.ndarray:
    """min(1, p/q) with a coin for each child: right for sampled drafts, but these are the drafter's top-k."""
    children = fixed.children[node]
    p = fixed.rows[node, fixed.child_tokens(node)].numpy()
    q = np.array([fixed.draft_probs[child] for child in children])
    accepted = coins[:, children] < p / q
    return np.where(accepted.any(axis=1), accepted.argmax(axis=1), len(children))


def _accept_double_sums(fixed: FixedTree, node: int, coins: np.ndarray) -> np.ndarray:
    return np.searchsorted(2 * running_sums(fixed, node), coins[:, node], side="right")


TARGET_ONLY = Rule("target-only")  # the rule that ships
FILTERS_LEFT_OUT = "filters left out"  # the rule that ships, on rows that were not filtered
NEGATIVE_CONTROLS = (
    Rule("min(1, p/q) on top-k", accept=_accept_by_ratio),
    Rule("one coin for both draws", final_coin=lambda node, coins, final_coins: coins[:, node]),
    Rule("rejected children left in", rest=lambda fixed, node: fixed.rows[node].double()),
    Rule(FILTERS_LEFT_OUT),
    Rule("siblings counted twice", accept=_accept_double_sums),
)


@dataclass(frozen=True, slots=True)
class Draws:
    """What each of n calls emitted, int64 [n] each."""

    first: np.ndarray  # token
    child: np.ndarray  # child of the root that was accepted, 0 if none
    second: np.ndarray  # token, -1 where no child was accepted
    accepted: np.ndarray  # drafts


def draw(rule: Rule, fixed: FixedTree, coins: np.ndarray, final_coins: np.ndarray) -> Draws:
    """One call for each row of `coins` float32 [n, q or more] and `final_coins` float32 [n]."""
    n = len(coins)
    at = {0: np.arange(n)}  # node -> calls that have reached it
    first, child, second = np.full(n, -1), np.zeros(n, dtype=np.int64), np.full(n, -1)
    accepted = np.zeros(n, dtype=np.int64)
    for node, children in enumerate(fixed.children):  # parents come before their children
        calls = at.pop(node, None)
        if calls is None or not len(calls):
            continue
        depth = fixed.depths[node]
        accepted[calls] = depth
        own_coins = coins[calls]
        place = rule.accept(fixed, node, own_coins) if children else np.zeros(len(calls), dtype=np.int64)
        emitted = np.empty(len(calls), dtype=np.int64)
        for position, kid in enumerate(children):
            taken = place == position
            at[kid], emitted[taken] = calls[taken], fixed.tokens[kid]
            if node == 0:
                child[calls[taken]] = kid
        ends = place == len(children)
        last_coins = rule.final_coin(node, own_coins[ends], final_coins[calls[ends]])
        cdf = rule.rest(fixed, node).cumsum(0)
        emitted[ends] = torch.searchsorted(cdf, cdf[-1] * torch.from_numpy(last_coins).double(), right=True).numpy()
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
    columns = (tree.tokens, tree.parents, tree.depths, tree.node_logws)
    tokens, parents, depths, logws = (column[:1, :size].repeat(n, 1) for column in columns)
    copies = DraftTree(tokens, parents, depths, logws, sizes=tree.sizes[:1].repeat(n), max_depth=tree.max_depth)
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
