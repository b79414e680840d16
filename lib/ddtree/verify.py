"""Verify a draft tree by sampling: the token after a node is distributed exactly as the target's row for that node.

This file checks the inputs and calls a backend; the rule itself is in backends/reference.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ddtree.backends.checks import check_probs, check_shapes, check_tree, check_values
from ddtree.backends.registry import (
    BACKENDS,
    SAMPLE,
    VERIFY,
    BackendStatus,
    BackendUnavailableError,
    backend_report,
    resolve,
)
from ddtree.retrieve import RetrieveTables
from ddtree.sampling import SamplingParams
from ddtree.tree import DraftTree

__all__ = [
    "BACKENDS",
    "BackendStatus",
    "BackendUnavailableError",
    "VerifyResult",
    "backend_report",
    "sample_tree",
    "verify_tree",
    "verify_tree_greedy",
]


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """What one verify call accepted, in the layout of the sampling kernels."""

    predict: Tensor  # int32 [bs*q], the token after each node of the accepted path; -1 elsewhere
    accept_index: Tensor  # int32 [bs, max_depth+1], flat indices (b*q + node) from the root on; -1 padded
    accept_count: Tensor  # int32 [bs], accepted drafts, without the root and without the final token


def verify_tree(
    tree: DraftTree,
    tables: RetrieveTables,
    probs: Tensor,
    coins: Tensor,
    final_coins: Tensor,
    *,
    backend: str = "auto",
) -> VerifyResult:
    """Walk each tree once, accepting children by target probability (the target-only rule of EAGLE and SGLang).

    Row i of `probs` is the distribution of the token after node i. A child is accepted iff its probability is above 0
    and the node's coin is below the running sum over its siblings so far; if none is, or at a leaf, the final coin
    samples the final token from the row without the rejected children. A token of probability 0 is never emitted.

    Args:
        probs: float32 [bs, q, V], rows as `target_probs` gives them.
        coins: float32 [bs, q] in [0, 1), one for each node; it decides among the node's children.
        final_coins: float32 [bs] in [0, 1).
        backend: "auto", "fused", "sgl" or "reference".

    Raises:
        ValueError: a shape, dtype, token id or coin out of range; a row with a negative entry or whose sum is not
            within 1e-3 of 1; siblings with the same token; links that are not the tree's.
        BackendUnavailableError: the backend named cannot run here.
    """
    check_shapes(tree, tables, probs, coins, final_coins)
    check_values(tree, probs.shape[-1], coins, final_coins)
    if probs.dtype != torch.float32:
        raise ValueError(f"probs are {probs.dtype}; the verify reads float32, as target_probs returns.")
    check_probs(tree, probs)
    check_tree(tree, tables, probs.shape[-1])
    verify = VERIFY[resolve(backend, probs.device)]
    return VerifyResult(*verify(tree, tables, probs, coins, final_coins))


def sample_tree(
    tree: DraftTree,
    tables: RetrieveTables,
    logits: Tensor,
    sampling: SamplingParams | Sequence[SamplingParams],
    coins: Tensor,
    final_coins: Tensor,
    *,
    backend: str = "auto",
) -> VerifyResult:
    """`verify_tree` from logits [bs, q, V] of any float type: what a decode loop calls.

    `sampling` is one SamplingParams, or one for each request; greedy and sampled requests may share a batch. The tree
    and its tables must come from `build_tree` and `compile_retrieve`: what `verify_tree` checks of them is not checked
    here. "reference" and "fused" normalise only the rows that the walk visits; "sgl" gets every row's `target_probs`.

    "fused" on a GPU waits for the device once, to report non-finite logits, and not at all under CUDA graph capture
    (call it once before: the first call compiles and uploads the parameters). Coins outside [0, 1) and tokens outside
    the vocabulary, which take a wait to see, are not checked there: such a token has probability 0. What a graph reads
    of the parameters is kept as long as the process runs; `backends.fused.sample` leaves waiting and parameters to its
    caller.

    Raises: as `verify_tree`, and NonFiniteLogitsError for a visited row without a distribution ("sgl": any row).
    """
    check_shapes(tree, tables, logits, coins, final_coins)
    requests = [sampling] * tree.batch_size if isinstance(sampling, SamplingParams) else list(sampling)
    if len(requests) != tree.batch_size:
        raise ValueError(f"sampling has {len(requests)} entries for a batch of {tree.batch_size} requests.")
    chosen = resolve(backend, logits.device)
    if chosen != "fused" or logits.device.type == "cpu":
        check_values(tree, logits.shape[-1], coins, final_coins)
    return VerifyResult(*SAMPLE[chosen](tree, tables, logits, requests, coins, final_coins))


def verify_tree_greedy(tree: DraftTree, tables: RetrieveTables, argmax: Tensor) -> VerifyResult:
    """The verify at temperature 0: follow the child that is the target's argmax, int [bs, q], while there is one."""
    bs, q = tree.tokens.shape
    if argmax.shape != (bs, q):
        raise ValueError(f"argmax has shape {list(argmax.shape)}; the tree needs {[bs, q]}.")
    batch = torch.arange(bs, device=tree.tokens.device)
    node = torch.zeros_like(batch)
    walking = torch.ones_like(batch, dtype=torch.bool)
    path = torch.full((bs, tree.max_depth + 1), -1, dtype=torch.int64, device=tree.tokens.device)
    path[:, 0] = 0
    is_child_of = tree.parents[:, None, :] == torch.arange(q, device=tree.tokens.device)[None, :, None]
    wanted = tree.tokens[:, None, :] == argmax[:, :, None]
    matches = is_child_of & wanted  # [bs, node, child]; at most one child a node, siblings differ
    for depth in range(1, tree.max_depth + 1):
        row = matches[batch, node]
        walking = walking & row.any(dim=1)
        node = torch.where(walking, row.int().argmax(dim=1), node)
        path[:, depth] = torch.where(walking, node, -1)
    kept = path >= 0
    flat = tables.index.gather(1, path.clamp(min=0))
    predict = torch.full((bs, q), -1, dtype=torch.int64, device=tree.tokens.device)
    after = argmax.long().gather(1, path.clamp(min=0))
    spare = torch.nn.functional.pad(predict, (0, 1))
    predict = spare.scatter(1, torch.where(kept, path, q), after)[:, :q]
    return VerifyResult(
        predict=predict.reshape(-1).int(),
        accept_index=torch.where(kept, flat, -1).int(),
        accept_count=(kept.sum(dim=1) - 1).int(),
    )
