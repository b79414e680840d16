# mypy: disallow-untyped-defs=False
"""Where a filter cuts a whole row: the last token kept, found by passes that weigh what lies above several keys."""

import triton
import triton.language as tl

from ddtree.kernels.order import LEAST, SIGN, first_of, float_of, key_of, packed
from ddtree.kernels.scaling import FADES, scaled


@triton.jit
def pivot(low, high, part, by_value):
    """A key in (low, high], `part` fifths of the way, by the keys' values or, where values bunch, by the keys."""
    if by_value:
        z = float_of(low) + (float_of(high) - float_of(low)) * (part * 0.2)
        at = key_of(z + 0.0).to(tl.int64)
    else:
        at = low.to(tl.int64) + (high.to(tl.int64) - low.to(tl.int64)) * part // 5
    at = tl.maximum(at, low.to(tl.int64) + 1)
    return tl.minimum(at, high.to(tl.int64)).to(tl.int32)


@triton.jit
def cut_of(
    row,
    vocab,
    chunks,
    temperature,
    inverse,
    top,
    within,
    goal,
    by_mass,
    sums,
    CHUNK: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """The last token kept, packed: of those from `within` up, the fewest whose weight reaches `goal` (float64).

    A token weighs 1, or by_mass exp(z - top). Of tokens with one key the lower ids are kept. Where all together
    stay below the goal, all are kept; tokens without any probability are not looked at.
    """
    column = tl.arange(0, ROWS)[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    low = key_of(top - FADES)
    high = key_of(top + 0.0)
    by_value = low < high
    while low < high:
        one = pivot(low, high, 1, by_value)
        two = pivot(low, high, 2, by_value)
        three = pivot(low, high, 3, by_value)
        four = pivot(low, high, 4, by_value)
        above_one = tl.zeros([ROWS], tl.float64)
        above_two = tl.zeros([ROWS], tl.float64)
        above_three = tl.zeros([ROWS], tl.float64)
        above_four = tl.zeros([ROWS], tl.float64)
        least = tl.full([ROWS], SIGN, tl.int32)
        largest = tl.full([ROWS], -SIGN, tl.int32)
        for start in range(0, vocab, ROWS * CHUNK):
            key, counts, weight = _weighed(row, start + column, vocab, temperature, inverse, top, within, by_mass)
            above_one += tl.sum(tl.where(key >= one, weight, 0.0), axis=1).to(tl.float64)
            above_two += tl.sum(tl.where(key >= two, weight, 0.0), axis=1).to(tl.float64)
            above_three += tl.sum(tl.where(key >= three, weight, 0.0), axis=1).to(tl.float64)
            above_four += tl.sum(tl.where(key >= four, weight, 0.0), axis=1).to(tl.float64)
            between = counts & (key >= low) & (key <= high)
            least = tl.minimum(least, tl.min(tl.where(between, key, SIGN), axis=1))
            largest = tl.maximum(largest, tl.max(tl.where(between, key, -SIGN), axis=1))
        present_low = tl.min(least, axis=0)
        present_high = tl.max(largest, axis=0)
        if tl.sum(above_four, axis=0) >= goal:
            low = four
        elif tl.sum(above_three, axis=0) >= goal:
            low = three
            high = four - 1
        elif tl.sum(above_two, axis=0) >= goal:
            low = two
            high = three - 1
        elif tl.sum(above_one, axis=0) >= goal:
            low = one
            high = two - 1
        else:
            high = one - 1
        low = tl.maximum(low, present_low)
        high = tl.minimum(high, present_high)
        by_value = by_value == 0
    return _among_equals(
        row,
        vocab,
        chunks,
        temperature,
        inverse,
        top,
        within,
        tl.minimum(low, high),
        goal,
        by_mass,
        sums,
        CHUNK,
        ROWS,
        CHUNKS,
    )


@triton.jit
def _weighed(row, tokens, vocab, temperature, inverse, top, within, by_mass):
    """Keys of `tokens`, which of them count, being from `within` up, and what those weigh."""
    inside = tokens < vocab
    z = scaled(tl.load(row + tokens, mask=inside, other=float("-inf")), temperature, inverse)
    key = key_of(z)
    counts = inside & (packed(key, tokens) >= within)
    weight = tl.where(counts, 1.0, 0.0)
    if by_mass:
        weight = tl.where(counts, tl.exp(z - top), 0.0)
    return key, counts, weight


@triton.jit
def _among_equals(
    row,
    vocab,
    chunks,
    temperature,
    inverse,
    top,
    within,
    at,
    goal,
    by_mass,
    sums,
    CHUNK: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """The last token kept among those of key `at`: as many as the goal leaves room for, lowest ids first."""
    column = tl.arange(0, ROWS)[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    above = tl.zeros([ROWS], tl.float64)
    tl.debug_barrier()
    for start in range(0, vocab, ROWS * CHUNK):
        key, counts, weight = _weighed(row, start + column, vocab, temperature, inverse, top, within, by_mass)
        above += tl.sum(tl.where(key > at, weight, 0.0), axis=1).to(tl.float64)
        equal = tl.sum((counts & (key == at)).to(tl.int32), axis=1)
        chunk = start // CHUNK + tl.arange(0, ROWS)
        tl.store(sums + chunk, equal.to(tl.float64), mask=chunk < chunks)
    tl.debug_barrier()
    left = goal - tl.sum(above, axis=0)
    each = tl.full([], 1.0, tl.float64)
    if by_mass:
        each = tl.exp(float_of(at) - top).to(tl.float64)
    chunk = tl.arange(0, CHUNKS)
    equal = tl.load(sums + chunk, mask=chunk < chunks, other=0.0).to(tl.int32)
    many = tl.sum(equal, axis=0)
    last = first_of(at)
    if left < each * many:
        room = tl.maximum(tl.ceil(left / each).to(tl.int32), 1)
        before = tl.cumsum(equal, axis=0)
        crossing = tl.min(tl.where(before >= room, chunk, CHUNKS - 1), axis=0)
        room -= tl.sum(tl.where(chunk < crossing, equal, 0), axis=0)
        tokens = crossing * CHUNK + tl.arange(0, CHUNK)
        inside = tokens < vocab
        z = scaled(tl.load(row + tokens, mask=inside, other=float("-inf")), temperature, inverse)
        here = packed(key_of(z), tokens)
        equals = inside & (key_of(z) == at) & (here >= within)
        kept = equals & (tl.cumsum(equals.to(tl.int32), axis=0) <= room)
        last = tl.min(tl.where(kept, here, -LEAST), axis=0)
    return last
