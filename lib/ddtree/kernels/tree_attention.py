"""Attention of a verify: every node over its request's prefix and over the nodes of its tree that it sees.

SGLang's extend kernel lays 17 nodes into a tile of 128, once for every head, and goes through a prefix from one end to
the other. Here the heads that share keys share a tile, and a prefix is met in parts at the same time, as in
Flash-Decoding (Dao et al., 2023); within a part runs the softmax of FlashAttention (arXiv 2205.14135).

Invariant: into how many parts keys fall follows from shapes alone, so a CUDA graph holds it for every length. A larger
batch has fewer parts, so who shares a batch can change a request's numbers in their rounding, as in matrix products.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

MOST_PARTS = 16  # the tree's own nodes are one of them
PROGRAMS = 600  # of a launch, at most, unless two parts have more; a large GPU has 130 multiprocessors
ROWS, KEYS = 64, 32  # at most, of the tile that a program takes
NARROW = 64  # numbers of a head, up to which a program does better without loading ahead
WIDEST = 256
LOG2_E = math.log2(math.e)


def tree_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pool: tuple[Tensor, Tensor],
    prefix: tuple[Tensor, Tensor],
    sight: tuple[Tensor, Tensor],
    *,
    nodes: int,
    scale: float,
) -> Tensor:
    """[rows, heads, size] of the type of `q`; rows are `nodes` a request, one request after another.

    Args:
        q: [rows, heads, size]; rows may lie apart, as in a fused projection.
        k, v: [rows, KV heads, size], the nodes' own, likewise.
        pool: keys and values [slots, KV heads, size] of all tokens.
        prefix: `indptr` integer [requests + 1] into `indices` integer, the slots of each request's prefix.
        sight: the tree mask as `write_tree_mask` lays it, uint8, and where each request's begins, [requests or more].
        scale: multiplies scores, 1 / sqrt(size) as a rule.

    Raises ValueError for a head of more than 256 numbers.
    """
    import triton  # lazily: it may be absent

    from ddtree.kernels.tree_attention_kernels import attend, join

    rows, heads, size = q.shape
    kv_heads = k.shape[1]
    if size > WIDEST:
        raise ValueError(f"a head has {size} numbers; tree attention takes at most {WIDEST}.")
    out = torch.empty(rows, heads, size, dtype=q.dtype, device=q.device)
    if rows == 0:
        return out
    q, k, v = (_by_rows(tensor) for tensor in (q, k, v))
    group = heads // kv_heads
    tile = min(max(triton.next_power_of_2(nodes * group), 16), ROWS)
    blocks = triton.cdiv(nodes * group, tile)
    parts = parts_of(rows // nodes * kv_heads * blocks)
    wide = max(triton.next_power_of_2(size), 16)
    sums = torch.empty(rows, heads, parts, size, dtype=torch.float32, device=q.device)
    peaks, masses = torch.empty(2, rows, heads, parts, dtype=torch.float32, device=q.device).unbind()
    strides = (q.stride(0), k.stride(0), v.stride(0), pool[0].stride(0), pool[1].stride(0))
    attend[(rows // nodes, kv_heads * blocks, parts)](
        q, k, v, *pool, *prefix, *sight, sums, peaks, masses, scale * LOG2_E, nodes, size, *strides,
        HEADS=heads, GROUP=group, BLOCKS=blocks, PARTS=parts, M=tile, N=KEYS, D=wide,
        num_warps=4, num_stages=1 if wide <= NARROW else 3,
    )  # fmt: skip
    join[(rows * heads,)](sums, peaks, masses, out, size, PARTS=parts, D=wide, num_warps=1)
    return out


def parts_of(programs: int) -> int:
    """Into how many parts keys fall, where each takes so many programs: a power of two from 2 to 16."""
    return min(1 << max((PROGRAMS // programs).bit_length() - 1, 1), MOST_PARTS)


def _by_rows(tensor: Tensor) -> Tensor:
    """The heads of a row one after another; rows may lie apart."""
    return tensor if tensor.stride()[1:] == (tensor.shape[2], 1) else tensor.contiguous()
