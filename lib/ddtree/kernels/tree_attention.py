"""Tree attention: every node attends to its request's prefix and to itself and its ancestors in the tree.

SGLang's extend kernel puts 17 nodes into a tile of 128, once for every head, and reads a prefix from one end to the
other. Here the heads that share keys share a tile, and the prefix is split over programs as in Flash-Decoding (Dao et
al., 2023); within a split runs the online softmax of FlashAttention (arXiv 2205.14135).

The number of splits follows only from shapes, so one CUDA graph serves every length. A larger batch has fewer splits,
so the batch can change a request's numbers in their rounding, as in matrix products.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

MAX_SPLITS = 16  # the tree's own nodes are one split
PROGRAMS = 600  # of a launch, at most, unless two splits have more; a large GPU has 130 multiprocessors
ROWS, KEYS = 64, 32  # at most, of the tile that a program takes
NARROW = 64  # numbers of a head, up to which a program does better without loading ahead
MAX_HEAD_DIM = 256
LOG2_E = math.log2(math.e)


def tree_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pool: tuple[Tensor, Tensor],
    prefix: tuple[Tensor, Tensor],
    mask: tuple[Tensor, Tensor],
    *,
    nodes: int,
    scale: float,
) -> Tensor:
    """[rows, heads, size] of the type of `q`; rows are `nodes` a request, one request after another.

    Args:
        q: [rows, heads, size]; rows may be strided, as in a fused projection.
        k, v: [rows, KV heads, size], the nodes' own, likewise.
        pool: keys and values [slots, KV heads, size] of all tokens.
        prefix: `indptr` integer [requests + 1] into `indices` integer, the slots of each request's prefix.
        mask: the tree mask as `write_tree_mask` writes it, uint8, and where each request's begins, [requests or more].
        scale: multiplies scores, 1 / sqrt(size) as a rule.

    Raises ValueError for a head of more than 256 numbers.
    """
    import triton  # lazily: it may be absent

    from ddtree.kernels.tree_attention_kernels import attend, combine_splits

    rows, heads, size = q.shape
    kv_heads = k.shape[1]
    if size > MAX_HEAD_DIM:
        raise ValueError(f"a head has {size} numbers; tree attention takes at most {MAX_HEAD_DIM}.")
    out = torch.empty(rows, heads, size, dtype=q.dtype, device=q.device)
    if rows == 0:
        return out
    q, k, v = (_by_rows(tensor) for tensor in (q, k, v))
    group = heads // kv_heads
    tile = min(max(triton.next_power_of_2(nodes * group), 16), ROWS)
    blocks = triton.cdiv(nodes * group, tile)
    splits = num_splits(rows // nodes * kv_heads * blocks)
    wide = max(triton.next_power_of_2(size), 16)
    acc = torch.empty(rows, heads, splits, size, dtype=torch.float32, device=q.device)
    m_i, l_i = torch.empty(2, rows, heads, splits, dtype=torch.float32, device=q.device).unbind()
    strides = (q.stride(0), k.stride(0), v.stride(0), pool[0].stride(0), pool[1].stride(0))
    attend[(rows // nodes, kv_heads * blocks, splits)](
        q, k, v, *pool, *prefix, *mask, acc, m_i, l_i, scale * LOG2_E, nodes, size, *strides,
        HEADS=heads, GROUP=group, BLOCKS=blocks, NUM_SPLITS=splits, M=tile, N=KEYS, D=wide,
        num_warps=4, num_stages=1 if wide <= NARROW else 3,
    )  # fmt: skip
    combine_splits[(rows * heads,)](acc, m_i, l_i, out, size, NUM_SPLITS=splits, D=wide, num_warps=1)
    return out


def num_splits(programs: int) -> int:
    """How many splits of the keys a launch gets, where each takes `programs`: a power of two from 2 to 16."""
    return min(1 << max((PROGRAMS // programs).bit_length() - 1, 1), MAX_SPLITS)


def _by_rows(tensor: Tensor) -> Tensor:
    """Contiguous within a row; rows may be strided."""
    return tensor if tensor.stride()[1:] == (tensor.shape[2], 1) else tensor.contiguous()
