"""The verify in plain torch and NumPy, on any device: the reference that every other backend must agree with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ddtree.retrieve import RetrieveTables
from ddtree.sampling import NonFiniteLogitsError, SamplingParams, target_probs
from ddtree.tree import DraftTree

RowOf = Callable[[int, int], Tensor]  # (request, node) -> float32 [V]


@dataclass(frozen=True, slots=True)
class Walk:
    """One request's walk: local nodes from the root on, and the token that ends it."""

    path: list[int]
    final_token: int


def verify(
    tree: DraftTree, tables: RetrieveTables, probs: Tensor, coins: Tensor, final_coins: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """`(predict, accept_index, accept_count)` from probabilities float32 [bs, q, V]; see `verify_tree`."""
    return _walk_batch(tree, tables, lambda b, node: probs[b, node], coins, final_coins)


def sample(
    tree: DraftTree,
    tables: RetrieveTables,
    logits: Tensor,
    sampling: Sequence[SamplingParams],
    coins: Tensor,
    final_coins: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """The same from logits [bs, q, V], normalising only the rows that the walk visits.

    A walk visits only accepted nodes, so a tree of 17 nodes costs two or three rows, not seventeen.
    """

    def visited_row(b: int, node: int) -> Tensor:
        p = sampling[b]
        if p.greedy:
            return _one_hot(logits[b, node], b, node)
        try:
            return target_probs(logits[b, node], temperature=p.temperature, top_k=p.top_k, top_p=p.top_p, min_p=p.min_p)
        except NonFiniteLogitsError:
            raise NonFiniteLogitsError.at(b, node) from None

    return _walk_batch(tree, tables, visited_row, coins, final_coins)


def _one_hot(row: Tensor, b: int, node: int) -> Tensor:
    best = int(row.argmax())  # the first largest; NaN counts as larger than any number
    if not math.isfinite(row[best]):
        raise NonFiniteLogitsError.at(b, node)
    probs = torch.zeros(row.shape, device=row.device)
    probs[best] = 1.0
    return probs


def _walk_batch(
    tree: DraftTree, tables: RetrieveTables, row_of: RowOf, coins: Tensor, final_coins: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    bs, q = tree.tokens.shape
    predict = np.full((bs, q), -1, dtype=np.int32)
    accept_index = np.full((bs, tree.max_depth + 1), -1, dtype=np.int32)
    accept_count = np.zeros(bs, dtype=np.int32)
    tokens, first_child, next_sibling = (t.tolist() for t in (tree.tokens, tables.next_token, tables.next_sibling))
    node_coins, last_coins = coins.cpu().numpy(), final_coins.cpu().numpy()
    for b in range(bs):
        walk = walk_one(
            tokens[b],
            first_child[b],
            next_sibling[b],
            lambda node, b=b: row_of(b, node),  # type: ignore[misc]
            node_coins[b],
            last_coins[b],
            tree.max_depth,
        )
        accept_count[b] = len(walk.path) - 1
        accept_index[b, : len(walk.path)] = [b * q + node for node in walk.path]
        predict[b, walk.path] = [*(tokens[b][node] for node in walk.path[1:]), walk.final_token]
    device = tree.tokens.device
    return tuple(torch.from_numpy(a).to(device) for a in (predict.reshape(-1), accept_index, accept_count))  # type: ignore[return-value]


def walk_one(
    tokens: Sequence[int],
    first_child: Sequence[int],
    next_sibling: Sequence[int],
    row_of: Callable[[int], Tensor],
    coins: np.ndarray,
    final_coin: np.float32,
    max_depth: int,
) -> Walk:
    """Descend while a child is accepted, then sample from the residual of the last node's row.

    The children of a node share its coin and are tried in link order: the first whose running sum of target
    probability exceeds the coin is accepted, which is inverse-CDF sampling over the children and then the rest.
    """
    node, path = 0, [0]
    while True:
        row = row_of(node)
        child, rejected = first_child[node], []
        running_sum = np.float32(0.0)
        while child != -1 and len(path) <= max_depth:
            if tokens[child] in rejected:  # its probability would count twice; a cycle would never end
                raise ValueError(
                    f"token {tokens[child]} occurs twice among the children of node {node}; siblings must differ."
                )
            prob = np.float32(row[tokens[child]].item())
            running_sum = np.float32(running_sum + prob)
            if prob > 0 and coins[node] < running_sum:
                break
            rejected.append(tokens[child])
            child = next_sibling[child]
        else:
            return Walk(path, sample_residual(row, rejected, final_coin))
        node = child
        path.append(node)


def sample_residual(row: Tensor, rejected: Sequence[int], coin: np.float32) -> int:
    """Inverse-CDF sampling from `row` without the rejected tokens, summed in float64.

    Where rounding leaves no mass (children cover the whole support and the coin lies above their float32 sum), `row`
    itself is sampled from: a token of probability 0 is never emitted.
    """
    rest = row.double()
    if rejected:
        rest[list(rejected)] = 0.0
    cdf = rest.cumsum(0)
    if cdf[-1] <= 0:
        cdf = row.double().cumsum(0)
    return int(torch.searchsorted(cdf, cdf[-1] * float(coin), right=True))
