# mypy: disallow-untyped-defs=False
"""The few tokens that can pass a filter, found by the largest logits of strands, in order; filters decide on them.

The r-th largest strand maximum is a lower bound of the r-th largest logit, so the tokens from it up hold the r first
of the row, and they lie in the few strands whose maximum reaches it.
"""

import triton
import triton.language as tl

from ddtree.kernels.order import LEAST, key_of, packed, value_of
from ddtree.kernels.scaling import FADES, scaled


@triton.jit
def bound_of(peak, wanted, top):
    """A scaled logit that at least `wanted` of the strands reach, or one below which no token has any probability."""
    low = tl.where(wanted == 1, top, top - FADES)
    high = top
    reached = tl.where(wanted == 1, 1, 0x7FFFFFFF)
    step = tl.full([], 0, tl.int32)
    while (step < 14) & (reached > wanted + wanted // 4):
        one = low + (high - low) * 0.33333334
        two = low + (high - low) * 0.6666667
        counts = tl.sum((peak >= one).to(tl.int32) + ((peak >= two).to(tl.int32) << 16), axis=0)  # both in one sum
        at_one = counts & 0xFFFF
        at_two = counts >> 16
        if at_two >= wanted:
            low = two
            reached = at_two
        elif at_one >= wanted:
            low = one
            high = two
            reached = at_one
        else:
            high = one
        step += 1
    return low


@triton.jit
def gather(
    row,
    vocab,
    temperature,
    inverse,
    peak,
    bound,
    chosen,
    unordered,
    STRANDS: tl.constexpr,
    WIDTH: tl.constexpr,
    PIECES: tl.constexpr,
    ROOM: tl.constexpr,
):
    """Packs every token from `bound` up into `unordered`, ROOM at most; returns how many there are."""
    reaches = (peak >= bound).to(tl.int32)
    tl.store(chosen + tl.cumsum(reaches, axis=0) - 1, tl.arange(0, STRANDS).to(tl.int64), mask=reaches > 0)
    many = tl.sum(reaches, axis=0)
    tl.debug_barrier()
    length = tl.cdiv(vocab, STRANDS * WIDTH)
    found = tl.full([], 0, tl.int32)
    for start in range(0, many * length, PIECES):
        piece = start + tl.arange(0, PIECES)
        which = piece // length
        strand = tl.load(chosen + which, mask=which < many, other=0).to(tl.int32)
        place = ((piece - which * length) * STRANDS + strand) * WIDTH
        tokens = tl.multiple_of(place, WIDTH)[:, None] + tl.arange(0, WIDTH)[None, :]
        inside = (tokens < vocab) & (which < many)[:, None]
        z = scaled(tl.load(row + tokens, mask=inside, other=float("-inf")), temperature, inverse)
        passes = (inside & (z >= bound)).to(tl.int32)
        each = tl.sum(passes, axis=1)
        before = found + tl.cumsum(each, axis=0) - each
        slot = before[:, None] + tl.cumsum(passes, axis=1) - 1
        tl.store(unordered + slot, packed(key_of(z), tokens), mask=(passes > 0) & (slot < ROOM))
        found += tl.sum(each, axis=0)
    tl.debug_barrier()
    return found


@triton.jit
def put_in_order(unordered, ordered, many, BLOCK: tl.constexpr, STEP: tl.constexpr):
    """Each token to its rank: the number of those before it."""
    for block in range(0, many, BLOCK):
        slot = block + tl.arange(0, BLOCK)
        mine = tl.load(unordered + slot, mask=slot < many, other=LEAST)
        before = tl.zeros([STEP, BLOCK], tl.int32)
        for start in range(0, many, STEP):
            other_slot = start + tl.arange(0, STEP)
            other = tl.load(unordered + other_slot, mask=other_slot < many, other=LEAST)
            before += (other[:, None] > mine[None, :]).to(tl.int32)
        tl.store(ordered + tl.sum(before, axis=0), mine, mask=slot < many)
    tl.debug_barrier()


@triton.jit
def filtered(ordered, many, top, top_k, top_p, min_p, row_total, ROOM: tl.constexpr):
    """Top-k, top-p and min-p on the candidates in order.

    `row_total` is the sum of exp(z - top) over the row where top-k is off; with top-k it is taken over the kept.
    Returns how many are kept, the last of them, the masses `total`, `share`, `rest` of `probability`, and whether
    the candidates were enough to decide.
    """
    slot = tl.arange(0, ROOM)
    here = tl.load(ordered + slot, mask=slot < many, other=LEAST)
    kept = slot < many
    weight = tl.exp(value_of(here) - top)
    total = row_total
    if top_k > 0:
        kept = kept & (slot < top_k)
        total = tl.sum(tl.where(kept, weight, 0.0), axis=0)
    p = tl.where(kept, tl.div_rn(weight, total), 0.0)
    share = tl.full([], 1.0, tl.float32)
    enough = many >= 0
    if top_p < 1.0:
        mass = tl.cumsum(p.to(tl.float64), axis=0)
        if top_k <= 0:
            enough = tl.sum(p.to(tl.float64), axis=0) >= top_p.to(tl.float64)
        kept = kept & ((mass - p.to(tl.float64) < top_p.to(tl.float64)) | (slot == 0))
        share = tl.sum(tl.where(kept, p, 0.0), axis=0)
        p = tl.where(kept, tl.div_rn(p, share), 0.0)
    rest = tl.full([], 1.0, tl.float32)
    if min_p > 0.0:
        kept = kept & (p >= min_p * tl.max(p, axis=0))
        rest = tl.sum(tl.where(kept, p, 0.0), axis=0)
    count = tl.sum(kept.to(tl.int32), axis=0)
    last = tl.min(tl.where(kept, here, -LEAST), axis=0)
    return count, last, total, share, rest, enough
