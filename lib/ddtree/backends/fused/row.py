# mypy: disallow-untyped-defs=False
"""Passes over one row of logits or probabilities, in tiles of whole chunks; what is kept is a number a chunk."""

import triton
import triton.language as tl

from ddtree.backends.fused.order import key_of, packed, scaled


@triton.jit
def survey(
    row,
    vocab,
    chunks,
    temperature,
    inverse,
    with_mass,
    maxima,
    sums,
    CHUNK: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNKS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Each chunk's largest logit into `maxima`, and with_mass its share of the row's probability into `sums`.

    Returns the row's largest scaled logit, +inf where the row holds NaN or +inf, and the sum
    of exp(z - largest z), 1 without mass.
    """
    column = tl.arange(0, ROWS)[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    tl.debug_barrier()  # the last row's numbers have been read
    for start in tl.range(0, vocab, ROWS * CHUNK, num_stages=STAGES):
        tokens = start + column
        x = tl.load(row + tokens, mask=tokens < vocab, other=float("-inf")).to(tl.float32)
        x = tl.where(x != x, float("inf"), x)
        largest = tl.max(x, axis=1)
        chunk = start // CHUNK + tl.arange(0, ROWS)
        tl.store(maxima + chunk, largest, mask=chunk < chunks)
        if with_mass:
            peak = scaled(largest, temperature, inverse)
            peak = tl.where(peak == float("-inf"), 0.0, peak)
            mass = tl.sum(tl.exp(scaled(x, temperature, inverse) - peak[:, None]), axis=1)
            tl.store(sums + chunk, mass.to(tl.float64), mask=chunk < chunks)
    tl.debug_barrier()
    chunk = tl.arange(0, CHUNKS)
    peak = scaled(tl.load(maxima + chunk, mask=chunk < chunks, other=float("-inf")), temperature, inverse)
    top = tl.max(peak, axis=0)
    total = tl.full([], 1.0, tl.float32)
    if with_mass:
        here = tl.load(sums + chunk, mask=chunk < chunks, other=0.0)
        here *= tl.exp(peak - tl.where(top == float("-inf"), 0.0, top)).to(tl.float64)
        whole = tl.sum(here, axis=0)
        total = whole.to(tl.float32)
        tl.debug_barrier()
        tl.store(sums + chunk, here / whole, mask=chunk < chunks)
    return top, total


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
