# mypy: disallow-untyped-defs=False
"""Passes over one row of logits or probabilities, each with as few instructions a token as its answer needs."""

import triton
import triton.language as tl

from ddtree.kernels.order import key_of, packed
from ddtree.kernels.scaling import scaled


@triton.jit
def tile(row, tokens, vocab):
    """Logits of a tile, -inf beyond the row.

    The passes load a tile ahead of the one they work on: a row's speed is how many of its bytes are on their way.
    """
    return tl.load(row + tokens, mask=tokens < vocab, other=float("-inf"))


@triton.jit
def survey(
    row,
    vocab,
    temperature,
    inverse,
    slope,
    with_mass,
    STRANDS: tl.constexpr,
    WIDTH: tl.constexpr,
    TALL: tl.constexpr,
):
    """Largest logits and, with_mass, the sum of exp(z - largest z) over the row, else 1; z is logit / temperature.

    A strand is what one thread reads: every STRANDS-th piece of WIDTH tokens, so no number crosses threads before
    the end of the row. Returns z of each strand's largest [STRANDS], the row's largest logit and its z, which are +inf
    where the row holds NaN or +inf, and the sum. The order of logits is that of z but for ties, so logits are compared
    undivided; `slope` is log2(e) / temperature.
    """
    TILE: tl.constexpr = TALL * STRANDS * WIDTH
    offset = tl.arange(0, TALL)[:, None] * (STRANDS * WIDTH) + tl.arange(0, STRANDS * WIDTH)[None, :]
    largest = tl.full([STRANDS], float("-inf"), tl.float32)
    mass = tl.zeros([STRANDS], tl.float32)  # of each strand, exp2(slope * x - base)
    base = tl.zeros([STRANDS], tl.float32)
    ahead = tile(row, offset, vocab)
    if with_mass:
        for start in range(TILE, vocab + TILE, TILE):
            x = tl.reshape(ahead.to(tl.float32), [TALL, STRANDS, WIDTH])
            largest = tl.maximum(largest, tl.max(tl.max(x, axis=2), axis=0))
            raised = tl.where(largest == float("-inf"), 0.0, largest) * slope
            here = tl.exp2(tl.fma(x, slope, -raised[None, :, None]))
            mass = tl.where(mass == 0.0, 0.0, mass * tl.exp2(base - raised)) + tl.sum(tl.sum(here, axis=2), axis=0)
            base = raised
            ahead = tile(row, start + offset, vocab)
        largest = tl.where(mass != mass, float("inf"), largest)
    else:
        best = tl.full([TALL, STRANDS * WIDTH // 2], float("-inf"), tl.float32)
        for start in range(TILE, vocab + TILE, TILE):
            even, odd = tl.split(tl.reshape(ahead.to(tl.float32), [TALL, STRANDS * WIDTH // 2, 2]))
            best = tl.maximum(best, even, propagate_nan=tl.PropagateNan.ALL)
            best = tl.maximum(best, odd, propagate_nan=tl.PropagateNan.ALL)
            ahead = tile(row, start + offset, vocab)
        best = tl.max(tl.where(best != best, float("inf"), best), axis=0)
        largest = tl.max(tl.reshape(best, [STRANDS, WIDTH // 2]), axis=1)
    highest = tl.max(largest, axis=0)
    total = tl.full([], 1.0, tl.float32)
    if with_mass:
        lowered = mass * tl.exp2(-tl.fma(highest, slope, -base))
        total = tl.sum(tl.where(mass == 0.0, 0.0, lowered).to(tl.float64), axis=0).to(tl.float32)
    return scaled(largest, temperature, inverse), highest, scaled(highest, temperature, inverse), total


@triton.jit
def probability(x, token, temperature, inverse, top, last, total, share, floor, rest, FROM_PROBS: tl.constexpr):
    """What the filters leave of a token's probability, float32; 0 for one that they drop.

    Kept are tokens from `last` (packed) up whose probability, divided by the mass `total` of top-k and the `share`
    that top-p keeps of it, is at least `floor`; `rest` is the share that min-p keeps.
    """
    if FROM_PROBS:
        return x.to(tl.float32)
    z = scaled(x, temperature, inverse)
    p = tl.div_rn(tl.div_rn(tl.exp(z - top), total), share)
    kept = (packed(key_of(z), token) >= last) & (p >= floor)
    return tl.where(kept, tl.div_rn(p, rest), 0.0)


@triton.jit
def weigh_unfiltered(row, vocab, chunks, slope, highest, total, sums, CHUNK: tl.constexpr, ROWS: tl.constexpr):
    """`weigh` where nothing is dropped; the exponential's argument is rounded once."""
    column = tl.arange(0, ROWS)[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    base = highest * slope
    unit = tl.div_rn(tl.exp2(-tl.fma(highest, slope, -base)), total).to(tl.float64)
    tl.debug_barrier()
    ahead = tile(row, column, vocab)
    for start in range(0, vocab, ROWS * CHUNK):
        here = tl.sum(tl.exp2(tl.fma(ahead.to(tl.float32), slope, -base)), axis=1)
        ahead = tile(row, start + ROWS * CHUNK + column, vocab)
        chunk = start // CHUNK + tl.arange(0, ROWS)
        tl.store(sums + chunk, here.to(tl.float64) * unit, mask=chunk < chunks)
    tl.debug_barrier()


@triton.jit
def weigh(
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
    sums,
    CHUNK: tl.constexpr,
    ROWS: tl.constexpr,
    FROM_PROBS: tl.constexpr,
):
    """Each chunk's sum of probabilities into `sums`, float64; returns the sum of all."""
    column = tl.arange(0, ROWS)[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    so_far = tl.zeros([ROWS], tl.float64)
    tl.debug_barrier()
    for start in range(0, vocab, ROWS * CHUNK):
        tokens = start + column
        inside = tokens < vocab
        x = tl.load(row + tokens, mask=inside, other=0.0)
        p = probability(x, tokens, temperature, inverse, top, last, total, share, floor, rest, FROM_PROBS)
        p = tl.where(inside, p, 0.0)
        here = tl.sum(p.to(tl.float64), axis=1)
        chunk = start // CHUNK + tl.arange(0, ROWS)
        tl.store(sums + chunk, here, mask=chunk < chunks)
        so_far += here
    tl.debug_barrier()
    return tl.sum(so_far, axis=0)
