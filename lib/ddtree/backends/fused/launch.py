"""The kernel's two doors, from logits and from probabilities: tensors in, tensors out, and nothing waits."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass

import torch
from torch import Tensor

from ddtree.backends.fused.parameters import SamplingTensors
from ddtree.retrieve import RetrieveTables
from ddtree.tree import DraftTree

READ = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How the kernel cuts a row; all powers of two but `nucleus` and `stages`."""

    chunk: int = 128  # elements that share one maximum; a warp reads them at once, so nothing crosses warps
    rows: int = 128  # chunks a tile
    at_once: int = 32  # chunks that are searched for candidates at a time
    room: int = 1024  # candidates that are put in order
    nucleus: int = 192  # chunk maxima whose least bounds the candidates of top-p alone
    step: int = 16  # how many are compared with all the others at a time
    warps: int = 32
    stages: int = 1  # tiles in flight


STOCK = Sizes()


def missing(device_type: str) -> str | None:
    """Why the kernel cannot be tried on this kind of device, or None."""
    if device_type != "cuda" and not interpreted():
        return f"the kernel runs on CUDA tensors, and these are on {device_type}"
    if importlib.util.find_spec("triton") is None:
        return f"triton is not installed; it comes with a CUDA build of torch (torch here is {torch.__version__})"
    return None


def interpreted() -> bool:
    """Whether Triton's interpreter, which runs kernels on a CPU, slowly, is switched on."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def sample(
    tree: DraftTree,
    tables: RetrieveTables,
    logits: Tensor,
    sampling: SamplingTensors,
    coins: Tensor,
    final_coins: Tensor,
    *,
    sizes: Sizes = STOCK,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`(predict, accept_index, accept_count, status)` from logits [bs, q, V]; see `verify_tree` for the first three.

    `status` is int32 [bs]: 0, or 1 + the first node on the walk whose logits are no distribution; that request's
    results stop there. Nothing here waits for the device, reads a value on the host or depends on one, so the call
    can be captured in a CUDA graph: the graph reads logits, tree, coins and parameters from the same tensors.
    A strided batch is read in place where a row is contiguous. Coins and tokens are taken to be in range; a token
    outside the vocabulary has probability 0.

    Raises ValueError for logits that are not float32, bfloat16 or float16, or parameters of another batch.
    """
    if logits.dtype not in READ:
        raise ValueError(f"logits are {logits.dtype}; the kernel reads float32, bfloat16 and float16.")
    if len(sampling.temperature) != tree.batch_size:
        raise ValueError(
            f"sampling is for {len(sampling.temperature)} requests, the tree for {tree.batch_size}; they must agree."
        )
    return _launch(tree, tables, logits, sampling, coins, final_coins, sizes)


def verify(
    tree: DraftTree,
    tables: RetrieveTables,
    probs: Tensor,
    coins: Tensor,
    final_coins: Tensor,
    *,
    sizes: Sizes = STOCK,
) -> tuple[Tensor, Tensor, Tensor]:
    """`(predict, accept_index, accept_count)` from probabilities float32 [bs, q, V]; see `verify_tree`."""
    return _launch(tree, tables, probs, None, coins, final_coins, sizes)[:3]


def _launch(
    tree: DraftTree,
    tables: RetrieveTables,
    rows: Tensor,
    sampling: SamplingTensors | None,
    coins: Tensor,
    final_coins: Tensor,
    sizes: Sizes,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    import triton  # lazily: a machine without a GPU need not have it

    from ddtree.backends.fused.walk import walk

    bs, q, vocab = rows.shape
    device = rows.device
    predict = torch.empty(bs * q, dtype=torch.int32, device=device)
    accept_index = torch.empty(bs, tree.max_depth + 1, dtype=torch.int32, device=device)
    accept_count, status = torch.empty(2, bs, dtype=torch.int32, device=device)
    if bs == 0:
        return predict, accept_index, accept_count, status
    if rows.stride(2) != 1:
        rows = rows.contiguous()
    chunks = triton.cdiv(vocab, sizes.chunk)
    most_chunks = triton.next_power_of_2(chunks)
    wide = max(most_chunks, sizes.room)
    maxima = torch.empty(bs, most_chunks, dtype=torch.float32, device=device)
    sums = torch.empty(bs, wide, dtype=torch.float64, device=device)
    chosen = torch.empty(bs, most_chunks, dtype=torch.int32, device=device)
    candidates = torch.empty(bs, 2 * sizes.room, dtype=torch.int64, device=device)
    rejected = torch.empty(bs, q, dtype=torch.int32, device=device)
    per_request = (
        (final_coins,) * 4  # not read
        if sampling is None
        else (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)
    )
    walk[(bs,)](
        rows,
        rows.stride(0),
        rows.stride(1),
        tree.tokens.contiguous(),
        tables.next_token.contiguous(),
        tables.next_sibling.contiguous(),
        coins.contiguous(),
        final_coins.contiguous(),
        *per_request,
        predict,
        accept_index,
        accept_count,
        status,
        maxima,
        sums,
        chosen,
        candidates,
        rejected,
        vocab,
        chunks,
        q,
        tree.max_depth,
        FROM_PROBS=sampling is None,
        CHUNK=sizes.chunk,
        ROWS=sizes.rows,
        AT_ONCE=sizes.at_once,
        CHUNKS=most_chunks,
        ROOM=sizes.room,
        NUCLEUS=sizes.nucleus,
        WIDE=wide,
        STEP=sizes.step,
        STAGES=sizes.stages,
        num_warps=sizes.warps,
    )
    return predict, accept_index, accept_count, status
