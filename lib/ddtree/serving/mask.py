"""The tree mask where SGLang's Triton attention reads it: per request q rows of prefix + q cells, one after another.

Invariant: only the q x q cells behind the prefix are written, since the kernel never reads the mask over the prefix.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ddtree.kernels.compiled import start

LANES = 256  # one compiled kernel serves all batches up to this many requests


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

    from ddtree.serving.mask_kernel import write_row

    bs, q, _ = visible.shape
    if bs:
        lanes = max(LANES, triton.next_power_of_2(bs)), triton.next_power_of_2(q)
        arguments = (buffer, visible.view(torch.uint8), prefix_len.contiguous(), q, *lanes)
        key = ("write_row", buffer.dtype, prefix_len.dtype, *lanes)
        start(write_row, (bs, q), arguments, buffer.device, key, warps=4)
