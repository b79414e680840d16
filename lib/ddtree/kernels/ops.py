"""Launch the Triton kernels of the tree builder: what fits, their workspace; nothing waits for the device."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

from ddtree.kernels.jit_cache import dtypes, launch

CHUNK = 128  # logits that share one maximum
ROWS = 32  # chunks a program surveys
MAX_CHUNKS = 4096  # of one row: they are put in order by one program
MAX_CANDIDATES = 8192  # logits of the chosen chunks, likewise
MAX_PREFIXES = 8192  # pairs of a depth, and entries of all depths, likewise
Operation = TypeVar("Operation", bound=Callable[..., object])

MAX_NODES = 2048  # of a tree whose links are compared, each with each
PAIRS_PER_PROGRAM = 8192  # pairs of nodes a program compares
MASK_BLOCK = 1024  # of a mask's row that a program writes
MASK_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@cache
def unavailable_reason(device_type: str) -> str | None:
    """Why the kernels cannot run on this kind of device, or None."""
    if device_type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"the kernels run on CUDA tensors, and these are on {device_type}"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed; it comes with a CUDA build of torch"
    return None


def run_on(of: Tensor) -> bool:
    """Whether Triton kernels do the work between two model passes on these tensors: on a GPU with Triton."""
    return of.is_cuda and len(of) > 0 and unavailable_reason("cuda") is None


def choose(of: Tensor, *, gpu: Operation, torch: Operation, fits: bool = True) -> Operation:
    """The implementation for the device of `of`: the one place where the core chooses between Triton and torch.

    `fits` says whether a kernel can hold the sizes at hand; torch takes over where it cannot.
    """
    return gpu if fits and run_on(of) else torch


def fits_topk(vocab: int, branch: int) -> bool:
    """Whether one program can sort a row's chunks, and the logits of the `branch` best of them."""
    chunks = -(-vocab // CHUNK)
    return chunks <= MAX_CHUNKS and _power(branch) * CHUNK <= MAX_CANDIDATES and _power(branch) <= _power(chunks)


def fits_selection(pairs: int, entries: int, width: int) -> bool:
    """Whether one program can sort the pairs of a depth, and the entries of all depths."""
    return max(pairs, entries, width) <= MAX_PREFIXES


def topk_tokens(logits: Tensor, branch: int, temperatures: Tensor | float) -> tuple[Tensor, Tensor]:
    """`topk_tokens` of logits [bs, depth, V] under one temperature or float32 [bs]; see `fits_topk` for the sizes."""
    from ddtree.kernels.tree_kernels import chunk_maxima, topk_from_chunks  # lazily: triton may be absent

    bs, depth, vocab = logits.shape
    rows = logits.reshape(bs * depth, vocab)
    if rows.stride(1) != 1:
        rows = rows.contiguous()
    chunks = -(-vocab // CHUNK)
    parts = -(-chunks // ROWS)
    device, stride = logits.device, rows.stride(0)
    each = isinstance(temperatures, Tensor)
    work = torch.empty(bs * depth * (chunks + 2 * parts), dtype=torch.float32, device=device)
    tokens = torch.empty(bs, depth, branch, dtype=torch.int64, device=device)
    logps = torch.empty(bs, depth, branch, dtype=torch.float32, device=device)
    read = (rows, stride, temperatures, depth, work)
    divisor = temperatures.dtype if isinstance(temperatures, Tensor) else None
    key = (rows.dtype, rows.data_ptr() % 16 == 0, stride, divisor, depth, vocab, CHUNK, ROWS)
    launch(
        chunk_maxima,
        (bs * depth, parts),
        (*read, vocab, chunks, parts, each, CHUNK, ROWS),
        device,
        ("chunk_maxima", *key),
        warps=8,
    )
    constants = (each, CHUNK, _power(chunks), _power(parts), _power(branch))
    launch(
        topk_from_chunks,
        (bs * depth,),
        (*read, tokens, logps, vocab, chunks, parts, branch, *constants),
        device,
        ("topk_from_chunks", *key, branch),
        warps=8,
    )
    return tokens, logps


def select_nodes(
    tokens: Tensor, logps: Tensor, roots: Tensor, tables: Sequence[Tensor], pairs: int, kept: int, width: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Tokens, parents, depths, node_logws and sizes of the trees that `select_nodes` describes.

    `tables` are a plan's: the pairs' parents and tokens, where each depth's pairs and entries launch, and the entries'
    depths. `pairs` is the largest number of pairs of a depth, `kept` the budget, `width` that and the root.
    """
    from ddtree.kernels.tree_kernels import select_nodes as kernel

    bs, depth, branch = tokens.shape
    entries = len(tables[-1])
    device = tokens.device
    work = torch.empty(bs, 3, entries, dtype=torch.int32, device=device)
    out_tokens, parents, depths = torch.empty(3, bs, width, dtype=torch.int64, device=device).unbind()
    node_logws = torch.empty(bs, width, dtype=torch.float32, device=device)
    sizes = torch.empty(bs, dtype=torch.int64, device=device)
    room = max(_power(entries), _power(width))
    roots = roots.contiguous()  # a column of a block, often
    read = (tokens.contiguous(), logps.contiguous(), roots, *tables)
    found = (out_tokens, parents, depths, node_logws, sizes)
    shape = (depth * branch, entries, width, depth, max(_power(pairs), _power(kept)), _power(kept), room, _power(width))
    launch(
        kernel,
        (bs,),
        (*read, work, *found, *shape),
        device,
        ("select_nodes", *dtypes(read), *shape),
        warps=8 if room <= 1024 else 16,
    )
    return out_tokens, parents, depths, node_logws, sizes


def link_nodes(parents: Tensor, node_logws: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`compile_retrieve`'s index, next_token and next_sibling of trees of at most `MAX_NODES` nodes."""
    from ddtree.kernels.tree_kernels import link_nodes as kernel

    bs, q = parents.shape
    device = parents.device
    index, next_token, next_sibling = torch.empty(3, bs, q, dtype=torch.int64, device=device).unbind()
    nodes = max(_power(q), 16)
    block = min(max(PAIRS_PER_PROGRAM // nodes, 4), nodes)
    read = (parents.contiguous(), node_logws.contiguous(), sizes.contiguous())
    arguments = (*read, index, next_token, next_sibling, q, nodes, block)
    launch(kernel, (bs, -(-q // block)), arguments, device, ("link_nodes", *dtypes(read), nodes, block), warps=8)
    return index, next_token, next_sibling


def tree_mask(parents: Tensor, prefix_len: Tensor, key_len: int, dtype: torch.dtype) -> Tensor:
    """`tree_attention_mask` [bs, 1, q, key_len] in one of the types in `MASK_DTYPES`."""
    from ddtree.kernels.tree_kernels import write_tree_mask

    bs, q = parents.shape
    device = parents.device
    mask = torch.empty(bs, 1, q, key_len, dtype=dtype, device=device)
    read = (parents.contiguous(), prefix_len.contiguous())
    closed = torch.finfo(dtype).min
    key = ("write_tree_mask", *dtypes(read), dtype, MASK_BLOCK)
    launch(
        write_tree_mask,
        (bs * q, -(-key_len // MASK_BLOCK)),
        (*read, mask, q, key_len, closed, MASK_BLOCK),
        device,
        key,
        warps=4,
    )
    return mask


def map_accepted(
    predict: Tensor, accept_index: Tensor, accept_count: Tensor, prefix_len: Tensor, q: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """`plan_commit`'s path, lengths, tokens, next_root and new_len, from a verify's int32 results."""
    from ddtree.kernels.tree_kernels import map_accepted as kernel

    bs, length = accept_index.shape
    device = predict.device
    path, tokens = torch.empty(2, bs, length, dtype=torch.int64, device=device).unbind()
    per_request = torch.empty(3, bs, dtype=torch.int64, device=device)
    read = (predict.contiguous(), accept_index.contiguous(), accept_count.contiguous(), prefix_len.contiguous())
    depths = _power(length)
    key = ("map_accepted", *dtypes(read), depths)
    launch(kernel, (bs,), (*read, path, tokens, per_request, bs, q, length, depths), device, key, warps=1)
    lengths, next_root, new_len = per_request.unbind()
    return path, lengths, tokens, next_root, new_len


def _power(n: int) -> int:
    """The smallest power of two that is at least n and at least 2, since sorting needs two."""
    return 1 << max((n - 1).bit_length(), 1)
