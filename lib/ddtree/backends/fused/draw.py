# mypy: disallow-untyped-defs=False
"""The last draw: the inverse of the running sum in id order, in float64, over what is kept and not rejected."""

import triton
import triton.language as tl

from ddtree.backends.fused.row import probability
from ddtree.kernels.order import LEAST, place_of, value_of


@triton.jit
def is_rejected(tokens, rejected, many):
    """Which of `tokens` stand in the list `rejected`, which is short."""
    hit = tokens < 0
    for i in range(0, many):
        hit = hit | (tokens == tl.load(rejected + i).to(tl.int32))
    return hit


@triton.jit
def crossing_of(running, weight, goal, BEYOND: tl.constexpr, SIZE: tl.constexpr):
    """The first place of any weight whose running sum exceeds the goal; where rounding leaves none, the last of any."""
    place = tl.arange(0, SIZE)
    first = tl.min(tl.where((weight > 0) & (running > goal), place, BEYOND), axis=0)
    final = tl.max(tl.where(weight > 0, place, 0), axis=0)
    return tl.where(first < BEYOND, first, final)


@triton.jit
def draw_from_candidates(
    ordered,
    many,
    top,
    total,
    share,
    rest,
    rejected,
    rejections,
    coin,
    sums,
    ROOM: tl.constexpr,
    BLOCK: tl.constexpr,
    STEP: tl.constexpr,
):
    """Of the `many` kept candidates; `sums` is room for their weights."""
    slot = tl.arange(0, ROOM)
    here = tl.load(ordered + slot, mask=slot < many, other=LEAST)
    weight = tl.where(
        slot < many, tl.div_rn(tl.div_rn(tl.div_rn(tl.exp(value_of(here) - top), total), share), rest), 0.0
    )
    left = tl.where(is_rejected(place_of(here), rejected, rejections), 0.0, weight)
    if tl.max(left, axis=0) <= 0.0:
        left = weight
    weight = left.to(tl.float64)
    goal = tl.sum(weight, axis=0) * coin.to(tl.float64)
    tl.debug_barrier()
    tl.store(sums + slot, weight, mask=slot < many)
    tl.debug_barrier()
    first = tl.full([], 0x7FFFFFFF, tl.int32)
    final = tl.full([], 0, tl.int32)
    for block in range(0, many, BLOCK):
        mine = block + tl.arange(0, BLOCK)
        tokens = place_of(tl.load(ordered + mine, mask=mine < many, other=LEAST))
        possible = tl.load(sums + mine, mask=mine < many, other=0.0) > 0
        running = tl.zeros([STEP, BLOCK], tl.float64)
        for start in range(0, many, STEP):
            slot_of_other = start + tl.arange(0, STEP)
            other = place_of(tl.load(ordered + slot_of_other, mask=slot_of_other < many, other=LEAST))
            other_weight = tl.load(sums + slot_of_other, mask=slot_of_other < many, other=0.0)
            running += tl.where(other[:, None] <= tokens[None, :], other_weight[:, None], 0.0)
        crosses = possible & (tl.sum(running, axis=0) > goal)
        first = tl.minimum(first, tl.min(tl.where(crosses, tokens, 0x7FFFFFFF), axis=0))
        final = tl.maximum(final, tl.max(tl.where(possible, tokens, 0), axis=0))
    return tl.where(first < 0x7FFFFFFF, first, final)


@triton.jit
def draw_from_row(
    row,
    vocab,
    chunks,
    temperature,
    inverse,
    top,
    last,
    total,
    share,
    floor,
    rest,
    rejected,
    rejections,
    coin,
    sums,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    FROM_PROBS: tl.constexpr,
):
    """Of the whole row: `sums` holds each chunk's weight. The chunk that crosses is found first, then the token."""
    chunk = tl.arange(0, CHUNKS)
    weight = tl.zeros([CHUNKS], tl.float64)
    without = rejections
    attempt = tl.full([], 0, tl.int32)
    while attempt < 2:
        for i in range(0, rejections):  # chunks of rejected tokens are summed anew; the second time, with them
            at = tl.load(rejected + i).to(tl.int32) // CHUNK
            p = _chunk(
                row, at, vocab, temperature, inverse, top, last, total, share, floor, rest, rejected, without,
                CHUNK, FROM_PROBS,
            )  # fmt: skip
            tl.store(sums + at, tl.sum(p, axis=0))
        tl.debug_barrier()
        weight = tl.load(sums + chunk, mask=chunk < chunks, other=0.0)
        attempt += 1
        if tl.max(weight, axis=0) > 0.0:
            attempt += 2
        else:
            without = without * 0
            tl.debug_barrier()
    running = tl.cumsum(weight, axis=0)
    goal = tl.max(running, axis=0) * coin.to(tl.float64)
    at = crossing_of(running, weight, goal, CHUNKS, CHUNKS)
    before = tl.sum(tl.where(chunk == at, running - weight, 0.0), axis=0)
    p = _chunk(
        row, at, vocab, temperature, inverse, top, last, total, share, floor, rest, rejected, without,
        CHUNK, FROM_PROBS,
    )  # fmt: skip
    return at * CHUNK + crossing_of(before + tl.cumsum(p, axis=0), p, goal, CHUNK, CHUNK)


@triton.jit
def _chunk(
    row,
    at,
    vocab,
    temperature,
    inverse,
    top,
    last,
    total,
    share,
    floor,
    rest,
    rejected,
    rejections,
    CHUNK: tl.constexpr,
    FROM_PROBS: tl.constexpr,
):
    """One chunk's probabilities in float64, those of rejected tokens 0."""
    tokens = at * CHUNK + tl.arange(0, CHUNK)
    inside = tokens < vocab
    x = tl.load(row + tokens, mask=inside, other=0.0)
    p = probability(x, tokens, temperature, inverse, top, last, total, share, floor, rest, FROM_PROBS)
    gone = is_rejected(tokens, rejected, rejections)
    return tl.where(inside & ~gone, p, 0.0).to(tl.float64)
