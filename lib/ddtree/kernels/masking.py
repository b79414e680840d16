# mypy: disallow-untyped-defs=False
"""A tree's attention mask: each node climbs to its root and opens, beside the prefix, what it meets on the way."""

import triton
import triton.language as tl

SMALL = ("parents", "prefix_len", "mask")
UNSPECIAL = ("q", "key_len")


@triton.jit(do_not_specialize=UNSPECIAL, do_not_specialize_on_alignment=SMALL)
def paint(
    parents,
    prefix_len,
    mask,  # [bs, q, key_len]
    q,
    key_len,
    closed,  # what a key gets that the node may not see
    BLOCK: tl.constexpr,
):
    """BLOCK keys of one node: 0 where it may look."""
    row = tl.program_id(0)
    request, node = row // q, row % q
    parents += request.to(tl.int64) * q
    start = tl.program_id(1) * BLOCK
    key = start + tl.arange(0, BLOCK)
    behind = key - tl.load(prefix_len + request)  # the node of each key; negative in the prefix
    open_ = behind < 0
    hops = 0
    above = node
    while (above >= 0) & (hops < q):
        open_ = open_ | (behind == above)
        above = tl.load(parents + above).to(tl.int32)
        hops += 1
    out = mask + row.to(tl.int64) * key_len + key
    tl.store(out, tl.where(open_, 0.0, closed).to(mask.dtype.element_ty), mask=key < key_len)
