"""The sampling verify: whatever the tree, the token after a node is distributed as the target's row for that node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ddtree.backends import fused, reference, sgl
from ddtree.backends.checks import refuse_bad_shapes, refuse_bad_values, refuse_improper_rows, refuse_unsound_tree
from ddtree.backends.registry import BACKENDS, VERIFY, BackendStatus, BackendUnavailableError, backend_report, resolve
from ddtree.retrieve import RetrieveTables
from ddtree.sampling import NonFiniteLogitsError, SamplingParams, target_probs
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

_IN_GRAPHS: dict[int, fused.SamplingTensors] = {}  # by id, never evicted: a CUDA graph goes on reading its parameters


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

    Row i of `probs` judges the children of node i. A child is accepted iff its probability is above 0 and the
    node's coin is below the running sum over its siblings so far; when none is, or at a leaf, the final token is
    drawn by the other coin from the row without the rejected children. A token of probability 0 is never emitted.

    Args:
        probs: float32 [bs, q, V], rows as `target_probs` gives them.
        coins: float32 [bs, q] in [0, 1), one for each node whose children are judged.
        final_coins: float32 [bs] in [0, 1).
        backend: "auto", "fused", "sgl" or "reference".

    Raises:
        ValueError: a shape, dtype, token id or coin out of range; a row with a negative entry or whose sum is not
            within 1e-3 of 1; siblings with one token; links that are not the tree's.
        BackendUnavailableError: the backend named cannot run here.
    """
    refuse_bad_shapes(tree, tables, probs, coins, final_coins)
    refuse_bad_values(tree, probs.shape[-1], coins, final_coins)
    if probs.dtype != torch.float32:
        raise ValueError(f"probs are {probs.dtype}; the verify reads float32, as target_probs returns.")
    refuse_improper_rows(tree, probs)
    refuse_unsound_tree(tree, tables, probs.shape[-1])
    run = VERIFY[resolve(backend, probs.device)]
    return VerifyResult(*run(tree, tables, probs, coins, final_coins))


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

    `sampling` is one SamplingParams, or one per request; greedy and sampled requests may stand in one batch. The
    tree and its tables are taken to be `build_tree`'s and `compile_retrieve`'s own: nothing here costs a round
    what `verify_tree` spends on looking for cycles and twin siblings.
    "reference" and "fused" normalise only the rows that the walk visits; "sgl" gets every row's `target_probs`.

    "fused" on a GPU waits for the device once, to learn of a row that is no distribution, and under CUDA graph
    capture not at all (call it once before: the first call compiles and uploads the parameters). So coins outside
    [0, 1) and tokens outside the vocabulary, which one must wait to see, are not looked for there: such a token has
    probability 0. What a graph reads of the parameters is kept for as long as the process runs.
    `backends.fused.sample` leaves the waiting to its caller, and the parameters.

    Raises: as `verify_tree`, and NonFiniteLogitsError for a visited row that is no distribution ("sgl": any row).
    """
    refuse_bad_shapes(tree, tables, logits, coins, final_coins)
    requests = [sampling] * tree.batch_size if isinstance(sampling, SamplingParams) else list(sampling)
    if len(requests) != tree.batch_size:
        raise ValueError(f"sampling has {len(requests)} entries for a batch of {tree.batch_size} requests.")
    chosen = resolve(backend, logits.device)
    if chosen != "fused" or logits.device.type == "cpu":
        refuse_bad_values(tree, logits.shape[-1], coins, final_coins)
    if chosen == "fused":
        return _sample_fused(tree, tables, logits, requests, coins, final_coins)
    if chosen == "reference":
        return VerifyResult(*reference.sample(tree, tables, logits, requests, coins, final_coins))
    probs = target_probs(
        logits,
        temperature=[p.temperature for p in requests],
        top_k=[p.top_k for p in requests],
        top_p=[p.top_p for p in requests],
        min_p=[p.min_p for p in requests],
    )
    return VerifyResult(*sgl.verify(tree, tables, probs, coins, final_coins))


def _sample_fused(
    tree: DraftTree,
    tables: RetrieveTables,
    logits: Tensor,
    requests: Sequence[SamplingParams],
    coins: Tensor,
    final_coins: Tensor,
) -> VerifyResult:
    rows = logits if logits.dtype in fused.READ else logits.float()
    sampling = _uploaded(requests, logits.device)
    if _capturing(logits.device):
        _IN_GRAPHS[id(sampling)] = sampling
        return VerifyResult(*fused.sample(tree, tables, rows, sampling, coins, final_coins)[:3])
    # The kernel writes it where the host can read it: a copy would be one more thing to send and to wait for.
    status = torch.empty(tree.batch_size, dtype=torch.int32, pin_memory=logits.is_cuda)
    try:
        result = fused.sample(tree, tables, rows, sampling, coins, final_coins, status=status)[:3]
    finally:  # whatever happens: torch does not know who writes to this memory, and would give it to another
        if logits.is_cuda:
            torch.cuda.current_stream(logits.device).synchronize()
    codes = status.tolist()
    if any(codes):
        raise NonFiniteLogitsError.at(*next((b, code - 1) for b, code in enumerate(codes) if code))
    return VerifyResult(*result)


def _capturing(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _uploaded(requests: Sequence[SamplingParams], device: torch.device) -> fused.SamplingTensors:
    """Kept by value, never by identity of a list, which may change or make room for another at the same address.

    One object for all requests, as a batch often has, is hashed once and not as many times.
    """
    if requests and all(params is requests[0] for params in requests):
        return _uploaded_alike(requests[0], len(requests), device)
    return _uploaded_apart(tuple(requests), device)


@lru_cache(maxsize=64)
def _uploaded_alike(params: SamplingParams, requests: int, device: torch.device) -> fused.SamplingTensors:
    return fused.SamplingTensors.from_requests([params] * requests, device)


@lru_cache(maxsize=64)
def _uploaded_apart(requests: tuple[SamplingParams, ...], device: torch.device) -> fused.SamplingTensors:
    return fused.SamplingTensors.from_requests(requests, device)


def verify_tree_greedy(tree: DraftTree, tables: RetrieveTables, argmax: Tensor) -> VerifyResult:
    """The walk at temperature 0: follow the child that is the target's argmax, int [bs, q], while there is one."""
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
