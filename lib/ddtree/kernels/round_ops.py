"""Coins, packed tree masks and KV compaction of a served round, each equal to a reference in torch or numpy.

Of a mask only the q x q cells after the prefix are written, since SGLang's attention never reads it over the prefix.
Compaction takes both its sources and its targets from the slots noted before the verify: a path ascends and its k-th
node is at least k, so moving its rows in order never reads a slot that was already overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ddtree.kernels.jit_cache import dtypes, launch

BITS, GOLDEN = 23, 0x9E3779B97F4A7C15  # as in `ddtree.sampling`


def coins_on_device(seeds: Tensor, prefix_len: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """`ddtree.sampling.step_coins` in one kernel: `seeds` and `prefix_len` are int64 [bs], on a device.

    Returns float32 [bs, width] for the nodes and float32 [bs] for the final draw, all in (0, 1).
    """
    import triton

    from ddtree.kernels.round_kernels import draw_coins

    bs = len(seeds)
    coins = torch.empty(bs, width, dtype=torch.float32, device=seeds.device)
    finals = torch.empty(bs, dtype=torch.float32, device=seeds.device)
    if bs:
        lanes = triton.next_power_of_2(width + 1)
        read = seeds.contiguous(), prefix_len.contiguous()
        key = ("draw_coins", *dtypes(read), lanes)
        launch(draw_coins, (bs,), (*read, coins, finals, width, GOLDEN, BITS, lanes), seeds.device, key, warps=4)
    return coins, finals


MASK_BATCH = 256  # one compiled kernel serves all batches up to this many requests


def mask_cells(prefix_sum: int, batch_size: int, width: int) -> int:
    """Cells that a batch's masks take, from an upper bound of the sum of its prefix lengths."""
    return width * (prefix_sum + batch_size * width)


def write_tree_mask(buffer: Tensor, visible: Tensor, prefix_len: Tensor) -> None:
    """Write `visible` bool [bs, q, q] into `buffer` uint8 [at least mask_cells(...)], in place, without waiting.

    `prefix_len` int64 [bs] are tokens with KV, so node i of request b looks at key prefix_len[b] + j iff visible.
    """
    q = visible.shape[1]
    node = torch.arange(q, device=visible.device)
    row = prefix_len + q
    start = torch.nn.functional.pad((row * q).cumsum(0)[:-1], (1, 0))
    cell = (start + prefix_len)[:, None, None] + node[:, None] * row[:, None, None] + node
    buffer.scatter_(0, cell.flatten(), visible.flatten().to(buffer.dtype))


def write_tree_mask_on_device(buffer: Tensor, visible: Tensor, prefix_len: Tensor) -> None:
    """`write_tree_mask` in one kernel; `visible` is contiguous."""
    import triton

    from ddtree.kernels.round_kernels import write_mask_row

    bs, q, _ = visible.shape
    if bs:
        lanes = max(MASK_BATCH, triton.next_power_of_2(bs)), triton.next_power_of_2(q)
        arguments = (buffer, visible.view(torch.uint8), prefix_len.contiguous(), q, *lanes)
        key = ("write_mask_row", buffer.dtype, prefix_len.dtype, *lanes)
        launch(write_mask_row, (bs, q), arguments, buffer.device, key, warps=4)


WORD = 8  # bytes that the kernel moves at a time
MOST_WORDS = 1024  # a tile


def row_moves(slots: Tensor, path: Tensor) -> tuple[Tensor, Tensor]:
    """`(targets, sources)` int64 [bs, depth]: where row k >= 1 of the path goes and where it is.

    `slots` int64 [bs, q], one of each node; `path` int64 [bs, depth+1] local nodes, -1 padded. Padding moves a slot
    onto itself: the row is its own request's, so nothing else is touched.
    """
    place = torch.arange(path.shape[1], device=path.device).expand_as(path)
    node = torch.where(path >= 0, path, place)
    return slots[:, 1 : path.shape[1]], slots.gather(1, node)[:, 1:]


def compact(buffers: Sequence[Tensor], slots: Tensor, path: Tensor) -> None:
    """Move the rows of `path` in each buffer [slots, ...]; the right values, on any device."""
    targets, sources = row_moves(slots, path)
    for buffer in buffers:
        buffer[targets.flatten()] = buffer[sources.flatten()]


def compact_on_device(pointers: Tensor, row_bytes: int, slots: Tensor, path: Tensor) -> None:
    """The same in one kernel: `pointers` uint64 [buffers], each of rows of `row_bytes`, contiguous.

    Raises ValueError for rows that are not a whole number of 8-byte words.
    """
    import triton

    from ddtree.kernels.round_kernels import move_path

    if row_bytes % WORD:
        raise ValueError(f"a KV row has {row_bytes} bytes; it must be a multiple of {WORD}.")
    bs, q = slots.shape
    if bs == 0:
        return
    words = row_bytes // WORD
    tile = min(triton.next_power_of_2(words), MOST_WORDS)
    read = pointers.view(torch.int64), slots.contiguous(), path.contiguous()
    key = ("move_path", *dtypes(read), tile)
    launch(move_path, (len(pointers), bs), (*read, words, q, path.shape[1], tile), slots.device, key, warps=4)
