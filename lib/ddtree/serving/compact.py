"""KV compaction: after a round the rows of the accepted path move to the front of the round's slots, in place.

Invariant: sources and targets both come from the slots that were noted before the verify, never from the scheduler's
table, which may by then belong to another request. A path ascends and its k-th node is at least k, so moving its rows
in order reads no slot that was written before.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ddtree.kernels.compiled import dtypes, start

WORD = 8  # bytes that the kernel moves at a time
MOST_WORDS = 1024  # a tile


def moves(slots: Tensor, path: Tensor) -> tuple[Tensor, Tensor]:
    """`(targets, sources)` int64 [bs, depth]: where row k >= 1 of the path goes and where it is.

    `slots` int64 [bs, q], one of each node; `path` int64 [bs, depth+1] local nodes, -1 padded. Padding moves a slot
    onto itself: the row is its own request's, so nothing else is touched.
    """
    place = torch.arange(path.shape[1], device=path.device).expand_as(path)
    node = torch.where(path >= 0, path, place)
    return slots[:, 1 : path.shape[1]], slots.gather(1, node)[:, 1:]


def compact(buffers: Sequence[Tensor], slots: Tensor, path: Tensor) -> None:
    """Move the rows of `path` in each buffer [slots, ...]; the right values, on any device."""
    targets, sources = moves(slots, path)
    for buffer in buffers:
        buffer[targets.flatten()] = buffer[sources.flatten()]


def compact_on_device(pointers: Tensor, row_bytes: int, slots: Tensor, path: Tensor) -> None:
    """The same in one kernel: `pointers` uint64 [buffers], each of rows of `row_bytes`, contiguous.

    Raises ValueError for rows that are no whole number of 8-byte words.
    """
    import triton

    from ddtree.serving.compact_kernel import move_path

    if row_bytes % WORD:
        raise ValueError(f"a KV row has {row_bytes} bytes; it must be a multiple of {WORD}.")
    bs, q = slots.shape
    if bs == 0:
        return
    words = row_bytes // WORD
    tile = min(triton.next_power_of_2(words), MOST_WORDS)
    read = pointers.view(torch.int64), slots.contiguous(), path.contiguous()
    key = ("move_path", *dtypes(read), tile)
    start(move_path, (len(pointers), bs), (*read, words, q, path.shape[1], tile), slots.device, key, warps=4)
