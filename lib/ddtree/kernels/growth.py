# mypy: disallow-untyped-defs=False
"""One request's best prefixes: depth after depth the best of the pairs that can be among them, then the best of all."""

import triton
import triton.language as tl

from ddtree.kernels.order import LEAST, key_of, packed, place_of, value_of

# Where these lie in memory Triton need not know, so that one compilation serves every call of a shape.
SMALL = (
    "tokens_in", "logps_in", "roots", "pair_parent", "pair_token", "first_pairs", "first_entries", "entry_depth",
    "work", "tokens_out", "parents_out", "depths_out", "node_logws_out", "sizes_out",
)  # fmt: skip


@triton.jit(do_not_specialize_on_alignment=SMALL)
def grow(
    tokens_in,
    logps_in,
    roots,
    pair_parent,
    pair_token,
    first_pairs,
    first_entries,
    entry_depth,
    work,  # int32 [bs, 3, entries]
    tokens_out,
    parents_out,
    depths_out,
    node_logws_out,
    sizes_out,
    favourites,
    entries,
    width,
    DEPTH: tl.constexpr,
    PAIRS: tl.constexpr,
    KEPT: tl.constexpr,
    ENTRIES: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """The tree of one request. `work` is room for a weight, a place and a rank an entry, the root among them.

    An entry is one of the prefixes kept at some depth, depths one after another, the root being entry 0.
    """
    request = tl.program_id(0)
    tokens_in += request * favourites
    logps_in += request * favourites
    work += request * 3 * entries
    weights = work.to(tl.pointer_type(tl.float32))
    places = work + entries
    ranks = places + entries
    tl.store(weights, 0.0)
    tl.store(places, 0)
    pair = tl.arange(0, PAIRS)
    kept = tl.arange(0, KEPT)
    for d in range(DEPTH):
        first = tl.load(first_pairs + d)
        count = tl.load(first_pairs + d + 1) - first
        entry = tl.load(first_entries + d + 1)
        size = tl.load(first_entries + d + 2) - entry
        tl.debug_barrier()  # the depth above is written
        parent = tl.load(pair_parent + first + pair, mask=pair < count, other=0)
        token = tl.load(pair_token + first + pair, mask=pair < count, other=0)
        weight = tl.load(weights + parent) + tl.load(logps_in + token)
        ordered = tl.where(pair < count, packed(key_of(weight + 0.0), pair), LEAST)
        best = tl.topk(ordered, KEPT)
        tl.store(weights + entry + kept, value_of(best), mask=kept < size)
        tl.store(places + entry + kept, first + place_of(best), mask=kept < size)
    tl.debug_barrier()

    entry = tl.arange(0, ENTRIES)
    weight = tl.load(weights + entry, mask=entry < entries, other=float("-inf"))
    ordered = tl.where(entry < entries, packed(key_of(weight), entry), LEAST)
    best = tl.topk(ordered, WIDTH)  # a parent stands before a child of equal weight, and the root first
    node = tl.arange(0, WIDTH)
    chosen = place_of(best)
    there = (node < width) & (best > LEAST)
    node_logw = tl.where(there, value_of(best), float("-inf"))
    real = there & (node_logw > float("-inf"))
    tl.store(ranks + chosen, node, mask=there)
    tl.debug_barrier()

    place = tl.load(places + chosen, mask=real, other=0)
    above = tl.load(pair_parent + place, mask=real & (node > 0), other=0)
    parent = tl.where(real & (node > 0), tl.load(ranks + above, mask=real & (node > 0), other=0), -1)
    favourite = tl.load(pair_token + place, mask=real & (node > 0), other=0)
    token = tl.load(tokens_in + favourite, mask=real & (node > 0), other=0)
    token = tl.where(node == 0, tl.load(roots + request).to(tl.int64), token)
    level = tl.load(entry_depth + chosen, mask=real, other=0)
    out = request * width + node
    tl.store(tokens_out + out, token, mask=node < width)
    tl.store(parents_out + out, parent.to(tl.int64), mask=node < width)
    tl.store(depths_out + out, level.to(tl.int64), mask=node < width)
    tl.store(node_logws_out + out, node_logw, mask=node < width)
    tl.store(sizes_out + request, tl.sum(real.to(tl.int64), axis=0))
