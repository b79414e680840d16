# mypy: disallow-untyped-defs=False
"""A tree's links: each node finds its first child and its next sibling by itself, in one order of all nodes."""

import triton
import triton.language as tl

from ddtree.kernels.order import LEAST, key_of, packed, place_of

SMALL = ("parents", "node_logws", "sizes", "index", "next_token", "next_sibling")
UNSPECIAL = ("q",)


@triton.jit(do_not_specialize=UNSPECIAL, do_not_specialize_on_alignment=SMALL)
def link(
    parents,
    node_logws,
    sizes,
    index,
    next_token,
    next_sibling,
    q,
    NODES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """BLOCK nodes of one request: a child that stands first, a sibling that stands next, -1 where there is none."""
    request = tl.program_id(0)
    first = request.to(tl.int64) * q
    size = tl.load(sizes + request)
    other = tl.arange(0, NODES)
    drafted = (other > 0) & (other < size)
    parent = tl.load(parents + first + other, mask=drafted, other=-1).to(tl.int32)
    weight = tl.load(node_logws + first + other, mask=drafted, other=0.0)
    order = tl.where(
        drafted, packed(key_of(weight + 0.0), other), LEAST
    )  # the heavier first, equal ones as in the array

    node = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    here = node < q
    mine = (node > 0) & (node < size)
    my_parent = tl.load(parents + first + node, mask=mine, other=-2).to(tl.int32)
    my_weight = tl.load(node_logws + first + node, mask=mine, other=0.0)
    my_order = packed(key_of(my_weight + 0.0), node)
    is_child = parent[None, :] == node[:, None]
    follows = (parent[None, :] == my_parent[:, None]) & (order[None, :] < my_order[:, None])
    child = tl.max(tl.where(is_child, order[None, :], LEAST), axis=1)
    sibling = tl.max(tl.where(follows, order[None, :], LEAST), axis=1)
    tl.store(index + first + node, first + node, mask=here)
    tl.store(next_token + first + node, tl.where(child > LEAST, place_of(child), -1).to(tl.int64), mask=here)
    tl.store(next_sibling + first + node, tl.where(sibling > LEAST, place_of(sibling), -1).to(tl.int64), mask=here)
