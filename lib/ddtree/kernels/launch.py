"""The builder's kernels as Python calls them: what fits, the room they need, and nothing that waits for the device."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

CHUNK = 128  # logits that share one maximum
ROWS = 32  # chunks a program surveys
MOST_CHUNKS = 4096  # of one row: they are put in order by one program
MOST_CANDIDATES = 8192  # logits of the chosen chunks, likewise
MOST_PREFIXES = 8192  # pairs of a depth, and entries of all depths, likewise


@cache
def missing(device_type: str) -> str | None:
    """Why the kernels cannot run on this kind of device, or None."""
    if device_type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"the kernels run on CUDA tensors, and these are on {device_type}"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed; it comes with a CUDA build of torch"
    return None


def fits(vocab: int, branch: int) -> bool:
    """Whether one program can order a row's chunks, and the logits of the `branch` best of them."""
    chunks = -(-vocab // CHUNK)
    return chunks <= MOST_CHUNKS and _power(branch) * CHUNK <= MOST_CANDIDATES and _power(branch) <= _power(chunks)


def holds(pairs: int, entries: int, width: int) -> bool:
    """Whether one program can order the pairs of a depth, and the entries of all."""
    return max(pairs, entries, width) <= MOST_PREFIXES


def likeliest(logits: Tensor, branch: int, temperatures: Tensor) -> tuple[Tensor, Tensor]:
    """`likeliest_tokens` of logits [bs, depth, V] under float32 temperatures [bs], for sizes that `fits` allows."""
    from ddtree.kernels.favourites import favourites, survey  # lazily: triton may be absent

    bs, depth, vocab = logits.shape
    rows = logits.reshape(bs * depth, vocab)
    if rows.stride(1) != 1:
        rows = rows.contiguous()
    chunks = -(-vocab // CHUNK)
    parts = -(-chunks // ROWS)
    device = logits.device
    maxima = torch.empty(bs * depth, chunks, device=device)
    peaks, masses = torch.empty(2, bs * depth, parts, device=device)
    tokens = torch.empty(bs, depth, branch, dtype=torch.int64, device=device)
    logps = torch.empty(bs, depth, branch, device=device)
    found = (maxima, peaks, masses)
    survey[(bs * depth, parts)](
        rows, rows.stride(0), temperatures, depth, *found, vocab, chunks, parts, CHUNK=CHUNK, ROWS=ROWS, num_warps=8
    )
    favourites[(bs * depth,)](
        rows,
        rows.stride(0),
        temperatures,
        depth,
        *found,
        tokens,
        logps,
        vocab,
        chunks,
        parts,
        branch,
        CHUNK=CHUNK,
        CHUNKS=_power(chunks),
        PARTS=_power(parts),
        BRANCH=_power(branch),
        num_warps=8,
    )
    return tokens, logps


def prefixes(
    tokens: Tensor, logps: Tensor, roots: Tensor, tables: Sequence[Tensor], pairs: int, kept: int, width: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Tokens, parents, depths, node_logws and sizes of the trees that `best_prefixes` describes.

    `tables` are a plan's: the pairs' parents and tokens, where each depth's pairs and entries start, and the entries'
    depths. `pairs` is the largest number of pairs of a depth, `kept` the budget, `width` that and the root.
    """
    from ddtree.kernels.growth import grow

    bs, depth, branch = tokens.shape
    entries = len(tables[-1])
    device = tokens.device
    weights = torch.empty(bs, entries, device=device)
    places, ranks = torch.empty(2, bs, entries, dtype=torch.int32, device=device)
    out_tokens, parents, depths = torch.empty(3, bs, width, dtype=torch.int64, device=device)
    node_logws = torch.empty(bs, width, device=device)
    sizes = torch.empty(bs, dtype=torch.int64, device=device)
    room = max(_power(entries), _power(width))
    grow[(bs,)](
        tokens.contiguous(),
        logps.contiguous(),
        roots.contiguous(),  # a column of a block, often
        *tables,
        weights,
        places,
        ranks,
        out_tokens,
        parents,
        depths,
        node_logws,
        sizes,
        depth * branch,
        entries,
        width,
        DEPTH=depth,
        PAIRS=max(_power(pairs), _power(kept)),
        KEPT=_power(kept),
        ENTRIES=room,
        WIDTH=_power(width),
        num_warps=8 if room <= 1024 else 16,
    )
    return out_tokens, parents, depths, node_logws, sizes


def _power(n: int) -> int:
    """The least power of two that is n or more, and 2 at least: an order needs two."""
    return 1 << max((n - 1).bit_length(), 1)
