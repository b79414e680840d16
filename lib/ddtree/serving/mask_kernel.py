# mypy: disallow-untyped-defs=False
"""The kernel of `write_tree_mask_on_device`: one program writes what one node of one request sees."""

import triton
import triton.language as tl

SMALL = ("buffer", "visible", "prefix_len")


@triton.jit(do_not_specialize=("width",), do_not_specialize_on_alignment=SMALL)
def write_row(buffer, visible, prefix_len, width, BATCH: tl.constexpr, WIDTH: tl.constexpr):
    request, node = tl.program_id(0), tl.program_id(1)
    other = tl.arange(0, BATCH)
    before = tl.load(prefix_len + other, mask=other < request, other=0)
    start = width * (tl.sum(before) + request.to(tl.int64) * width)
    prefix = tl.load(prefix_len + request)
    row = start + node * (prefix + width) + prefix
    seen = tl.arange(0, WIDTH)
    inside = seen < width
    cell = tl.load(visible + (request.to(tl.int64) * width + node) * width + seen, mask=inside)
    tl.store(buffer + row + seen, cell, mask=inside)
