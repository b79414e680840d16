# mypy: disallow-untyped-defs=False
"""The few tokens that can pass a filter, found by the largest logits of chunks, in order; filters decide on them.

The r-th largest chunk maximum is a lower bound of the r-th largest logit, so the tokens from it up hold the r first
of the row, and they lie in the few chunks whose maximum reaches it.
"""

import triton
import triton.language as tl

from ddtree.backends.fused.order import FADES, LEAST, float_of, key_of, packed, scaled


@triton.jit
def bound_of(maxima, chunks, wanted, temperature, inverse, top, CHUNKS: tl.constexpr):
    """A scaled logit that at least `wanted` chunks reach, or one below which no token has any probability."""
    chunk = tl.arange(0, CHUNKS)
    peak = scaled(tl.load(maxima + chunk, mask=chunk < chunks, other=float("-inf")), temperature, inverse)
    low = top - FADES
    high = top
    reached = chunks + wanted
    step = tl.full([], 0, tl.int32)
    while (step < 20) & (reached > wanted + wanted // 8):
        middle = low + (high - low) * 0.5
        count = tl.sum((peak >= middle).to(tl.int32), axis=0)
        if count >= wanted:
            low = middle
            reached = count
        else:
            high = middle
        step += 1
    return low


@triton.jit
def gather(
    row,
    vocab,
    chunks,
    temperature,
    inverse,
    bound,
    maxima,
    chosen,
    unordered,
    CHUNK: tl.constexpr,
    AT_ONCE: tl.constexpr,
    CHUNKS: tl.constexpr,
    ROOM: tl.constexpr,
):
    """Packs every token from `bound` up into `unordered`, ROOM at most; returns how many there are."""
    chunk = tl.arange(0, CHUNKS)
    peak = scaled(tl.load(maxima + chunk, mask=chunk < chunks, other=float("-inf")), temperature, inverse)
    reaches = (peak >= bound).to(tl.int32)
    tl.store(chosen + tl.cumsum(reaches, axis=0) - 1, chunk, mask=reaches > 0)
    many = tl.sum(reaches, axis=0)
    tl.debug_barrier()
    found = tl.full([], 0, tl.int32)
    for start in range(0, many, AT_ONCE):
        slot = start + tl.arange(0, AT_ONCE)
        here = tl.load(chosen + slot, mask=slot < many, other=0)
        tokens = here[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
        inside = (tokens < vocab) & (slot < many)[:, None]
        z = scaled(tl.load(row + tokens, mask=inside, other=float("-inf")), temperature, inverse)
        passes = (inside & (z >= bound)).to(tl.int32)
        each = tl.sum(passes, axis=1)
        first = found + tl.cumsum(each, axis=0) - each
        place = first[:, None] + tl.cumsum(passes, axis=1) - 1
        tl.store(unordered + place, packed(key_of(z), tokens), mask=(passes > 0) & (place < ROOM))
        found += tl.sum(each, axis=0)
    tl.debug_barrier()
    return found


@triton.jit
def put_in_order(unordered, ordered, many, ROOM: tl.constexpr, STEP: tl.constexpr):
    """Each token to its rank: the number of those before it."""
    slot = tl.arange(0, ROOM)
    mine = tl.load(unordered + slot, mask=slot < many, other=LEAST)
    rank = tl.zeros([ROOM], tl.int32)
    for start in range(0, many, STEP):
        other_slot = start + tl.arange(0, STEP)
        other = tl.load(unordered + other_slot, mask=other_slot < many, other=LEAST)
        rank += tl.sum((other[:, None] > mine[None, :]).to(tl.int32), axis=0)
    tl.store(ordered + rank, mine, mask=slot < many)
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
    weight = tl.exp(float_of((here >> 32).to(tl.int32)) - top)
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
