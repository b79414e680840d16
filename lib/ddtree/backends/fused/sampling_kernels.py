# mypy: disallow-untyped-defs=False
"""Triton functions that filter one row of logits and sample from it: temperature, top-k, top-p, min-p, inverse CDF.

The r-th largest lane maximum is a lower bound of the r-th largest logit, so the tokens at or above it contain the r
largest of the row, and only the lanes whose maximum reaches it have to be read again. Sums over a row are float64."""

from typing import NamedTuple

import triton
import triton.language as tl

from ddtree.kernels.sort_keys import (
    EXP_UNDERFLOW,
    LEAST,
    SIGN,
    first_of,
    float_of,
    key_of,
    packed,
    place_of,
    scaled,
    value_of,
)


class RowFilter(NamedTuple):
    """What the filters leave of one row, with z = logit / temperature; see `probability`.

    One value in place of eight: every function below that needs the distribution of a row takes it.
    """

    temperature: tl.tensor
    inverse: tl.tensor  # 1 / temperature
    max_z: tl.tensor
    last: tl.tensor  # packed key of the last token kept by top-k and top-p
    topk_mass: tl.tensor  # sum of exp(z - max_z) over the tokens that top-k keeps
    topp_mass: tl.tensor  # share of that which top-p keeps
    min_prob: tl.tensor  # min-p's threshold
    minp_mass: tl.tensor  # share that min-p keeps


@triton.jit
def tile(row, tokens, vocab):
    """Logits of a tile, -inf beyond the row.

    Each pass loads the tile after the one it works on, so that memory is always busy.
    """
    return tl.load(row + tokens, mask=tokens < vocab, other=float("-inf"))


@triton.jit
def row_max_and_sumexp(
    row,
    vocab,
    temperature,
    inverse,
    slope,
    with_sum,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """The largest logits and, with_sum, the sum of exp(z - max z) over the row, else 1; z is logit / temperature.

    A lane is what one thread reads: every LANES-th vector of VEC tokens, so nothing is reduced across threads before
    the end of the row. Returns z of each lane's largest [LANES], the row's largest logit and its z, both +inf where
    the row has NaN or +inf, and the sum. Logits order as z does except for ties, so they are compared undivided;
    `slope` is log2(e) / temperature.
    """
    TILE: tl.constexpr = UNROLL * LANES * VEC
    offset = tl.arange(0, UNROLL)[:, None] * (LANES * VEC) + tl.arange(0, LANES * VEC)[None, :]
    largest = tl.full([LANES], float("-inf"), tl.float32)
    sumexp = tl.zeros([LANES], tl.float32)  # of each lane, exp2(slope * x - base)
    base = tl.zeros([LANES], tl.float32)
    ahead = tile(row, offset, vocab)
    if with_sum:
        for start in range(TILE, vocab + TILE, TILE):
            x = tl.reshape(ahead.to(tl.float32), [UNROLL, LANES, VEC])
            largest = tl.maximum(largest, tl.max(tl.max(x, axis=2), axis=0))
            raised = tl.where(largest == float("-inf"), 0.0, largest) * slope
            here = tl.exp2(tl.fma(x, slope, -raised[None, :, None]))
            sumexp = tl.where(sumexp == 0.0, 0.0, sumexp * tl.exp2(base - raised)) + tl.sum(
                tl.sum(here, axis=2), axis=0
            )
            base = raised
            ahead = tile(row, start + offset, vocab)
        largest = tl.where(sumexp != sumexp, float("inf"), largest)
    else:
        best = tl.full([UNROLL, LANES * VEC // 2], float("-inf"), tl.float32)
        for start in range(TILE, vocab + TILE, TILE):
            even, odd = tl.split(tl.reshape(ahead.to(tl.float32), [UNROLL, LANES * VEC // 2, 2]))
            best = tl.maximum(best, even, propagate_nan=tl.PropagateNan.ALL)
            best = tl.maximum(best, odd, propagate_nan=tl.PropagateNan.ALL)
            ahead = tile(row, start + offset, vocab)
        best = tl.max(tl.where(best != best, float("inf"), best), axis=0)
        largest = tl.max(tl.reshape(best, [LANES, VEC // 2]), axis=1)
    max_logit = tl.max(largest, axis=0)
    total = tl.full([], 1.0, tl.float32)
    if with_sum:
        lowered = sumexp * tl.exp2(-tl.fma(max_logit, slope, -base))
        total = tl.sum(tl.where(sumexp == 0.0, 0.0, lowered).to(tl.float64), axis=0).to(tl.float32)
    return scaled(largest, temperature, inverse), max_logit, scaled(max_logit, temperature, inverse), total


@triton.jit
def probability(x, token, keep, FROM_PROBS: tl.constexpr):
    """A token's probability after the filters (`keep`), float32; 0 for a token that they drop.

    A token is kept if its packed key is at least `keep.last` and its probability after top-k and top-p at least
    `keep.min_prob`.
    """
    if FROM_PROBS:
        return x.to(tl.float32)
    z = scaled(x, keep.temperature, keep.inverse)
    p = tl.div_rn(tl.div_rn(tl.exp(z - keep.max_z), keep.topk_mass), keep.topp_mass)
    kept = (packed(key_of(z), token) >= keep.last) & (p >= keep.min_prob)
    return tl.where(kept, tl.div_rn(p, keep.minp_mass), 0.0)


@triton.jit
def chunk_sums_unfiltered(row, vocab, chunks, slope, max_logit, total, sums, CHUNK: tl.constexpr, ROWS: tl.constexpr):
    """`chunk_sums` where nothing is dropped; the exponential's argument is rounded once."""
    column = tl.arange(0, ROWS)[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    base = max_logit * slope
    unit = tl.div_rn(tl.exp2(-tl.fma(max_logit, slope, -base)), total).to(tl.float64)
    tl.debug_barrier()
    ahead = tile(row, column, vocab)
    for start in range(0, vocab, ROWS * CHUNK):
        here = tl.sum(tl.exp2(tl.fma(ahead.to(tl.float32), slope, -base)), axis=1)
        ahead = tile(row, start + ROWS * CHUNK + column, vocab)
        chunk = start // CHUNK + tl.arange(0, ROWS)
        tl.store(sums + chunk, here.to(tl.float64) * unit, mask=chunk < chunks)
    tl.debug_barrier()


@triton.jit
def chunk_sums(row, vocab, chunks, keep, sums, CHUNK: tl.constexpr, ROWS: tl.constexpr, FROM_PROBS: tl.constexpr):
    """Each chunk's sum of probabilities into `sums`, float64; returns the sum of all."""
    column = tl.arange(0, ROWS)[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    so_far = tl.zeros([ROWS], tl.float64)
    tl.debug_barrier()
    for start in range(0, vocab, ROWS * CHUNK):
        tokens = start + column
        inside = tokens < vocab
        x = tl.load(row + tokens, mask=inside, other=0.0)
        p = probability(x, tokens, keep, FROM_PROBS)
        p = tl.where(inside, p, 0.0)
        here = tl.sum(p.to(tl.float64), axis=1)
        chunk = start // CHUNK + tl.arange(0, ROWS)
        tl.store(sums + chunk, here, mask=chunk < chunks)
        so_far += here
    tl.debug_barrier()
    return tl.sum(so_far, axis=0)


@triton.jit
def candidate_bound(lane_max, wanted, row_max):
    """A z that at least `wanted` lanes reach, or one below which no token has any probability."""
    low = tl.where(wanted == 1, row_max, row_max - EXP_UNDERFLOW)
    high = row_max
    reached = tl.where(wanted == 1, 1, 0x7FFFFFFF)
    step = tl.full([], 0, tl.int32)
    while (step < 14) & (reached > wanted + wanted // 4):
        one = low + (high - low) * 0.33333334
        two = low + (high - low) * 0.6666667
        counts = tl.sum(
            (lane_max >= one).to(tl.int32) + ((lane_max >= two).to(tl.int32) << 16), axis=0
        )  # both in one sum
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
def gather_candidates(
    row,
    vocab,
    temperature,
    inverse,
    lane_max,
    bound,
    lanes,
    unordered,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
    GATHER_BLOCK: tl.constexpr,
    MAX_CANDIDATES: tl.constexpr,
):
    """Packs every token from `bound` up into `unordered`, MAX_CANDIDATES at most; returns how many there are."""
    reaches = (lane_max >= bound).to(tl.int32)
    tl.store(lanes + tl.cumsum(reaches, axis=0) - 1, tl.arange(0, LANES).to(tl.int64), mask=reaches > 0)
    many = tl.sum(reaches, axis=0)
    tl.debug_barrier()
    length = tl.cdiv(vocab, LANES * VEC)
    found = tl.full([], 0, tl.int32)
    for start in range(0, many * length, GATHER_BLOCK):
        vector = start + tl.arange(0, GATHER_BLOCK)
        which = vector // length
        lane = tl.load(lanes + which, mask=which < many, other=0).to(tl.int32)
        place = ((vector - which * length) * LANES + lane) * VEC
        tokens = tl.multiple_of(place, VEC)[:, None] + tl.arange(0, VEC)[None, :]
        inside = (tokens < vocab) & (which < many)[:, None]
        z = scaled(tl.load(row + tokens, mask=inside, other=float("-inf")), temperature, inverse)
        passes = (inside & (z >= bound)).to(tl.int32)
        each = tl.sum(passes, axis=1)
        before = found + tl.cumsum(each, axis=0) - each
        slot = before[:, None] + tl.cumsum(passes, axis=1) - 1
        tl.store(unordered + slot, packed(key_of(z), tokens), mask=(passes > 0) & (slot < MAX_CANDIDATES))
        found += tl.sum(each, axis=0)
    tl.debug_barrier()
    return found


@triton.jit
def rank_sort(unordered, ordered, many, BLOCK: tl.constexpr, STEP: tl.constexpr):
    """Write each packed token at its rank: the number of tokens before it."""
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
def filter_candidates(ordered, many, max_z, top_k, top_p, min_p, row_mass, SIZE: tl.constexpr):
    """Top-k, top-p and min-p on the ordered candidates.

    `row_mass` is the sum of exp(z - max_z) over the row, read where top-k is off; with top-k the sum is over the kept.
    Returns how many are kept, the last of them, `RowFilter`'s three masses, and whether the candidates were enough.
    """
    slot = tl.arange(0, SIZE)
    here = tl.load(ordered + slot, mask=slot < many, other=LEAST)
    kept = slot < many
    weight = tl.exp(value_of(here) - max_z)
    topk_mass = row_mass
    if top_k > 0:
        kept = kept & (slot < top_k)
        topk_mass = tl.sum(tl.where(kept, weight, 0.0), axis=0)
    p = tl.where(kept, tl.div_rn(weight, topk_mass), 0.0)
    topp_mass = tl.full([], 1.0, tl.float32)
    enough = many >= 0
    if top_p < 1.0:
        mass = tl.cumsum(p.to(tl.float64), axis=0)
        if top_k <= 0:
            enough = tl.sum(p.to(tl.float64), axis=0) >= top_p.to(tl.float64)
        kept = kept & ((mass - p.to(tl.float64) < top_p.to(tl.float64)) | (slot == 0))
        topp_mass = tl.sum(tl.where(kept, p, 0.0), axis=0)
        p = tl.where(kept, tl.div_rn(p, topp_mass), 0.0)
    minp_mass = tl.full([], 1.0, tl.float32)
    if min_p > 0.0:
        kept = kept & (p >= min_p * tl.max(p, axis=0))
        minp_mass = tl.sum(tl.where(kept, p, 0.0), axis=0)
    count = tl.sum(kept.to(tl.int32), axis=0)
    last = tl.min(tl.where(kept, here, -LEAST), axis=0)
    return count, last, topk_mass, topp_mass, minp_mass, enough


@triton.jit
def pivot(low, high, part, by_value):
    """A key in (low, high], `part` fifths of the way, by the keys' values or, where those cluster, by the keys."""
    if by_value:
        z = float_of(low) + (float_of(high) - float_of(low)) * (part * 0.2)
        at = key_of(z + 0.0).to(tl.int64)
    else:
        at = low.to(tl.int64) + (high.to(tl.int64) - low.to(tl.int64)) * part // 5
    at = tl.maximum(at, low.to(tl.int64) + 1)
    return tl.minimum(at, high.to(tl.int64)).to(tl.int32)


@triton.jit
def filter_threshold(
    row,
    vocab,
    chunks,
    keep,
    goal,
    by_mass,
    sums,
    CHUNK: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """The last token kept, packed: of those from `keep.last` up, the fewest whose weights reach `goal` (float64).

    A token weighs 1, or by_mass exp(z - max_z). Among tokens of one key the lower ids are kept. If all together stay
    below the goal, all are kept; tokens without any probability are not visited. Four pivots a pass cut the range of
    keys to a fifth: a pass is bound by reading the row, so fewer passes are worth the comparisons.
    """
    column = tl.arange(0, ROWS)[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    low = key_of(keep.max_z - EXP_UNDERFLOW)
    high = key_of(keep.max_z + 0.0)
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
            key, counts, weight = _weights(row, start + column, vocab, keep, by_mass)
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
    at = tl.minimum(low, high)
    return _last_of_key(row, vocab, chunks, keep, at, goal, by_mass, sums, CHUNK, ROWS, CHUNKS)


@triton.jit
def _weights(row, tokens, vocab, keep, by_mass):
    """Keys of `tokens`, which of them count (from `keep.last` up), and their weights."""
    inside = tokens < vocab
    z = scaled(tl.load(row + tokens, mask=inside, other=float("-inf")), keep.temperature, keep.inverse)
    key = key_of(z)
    counts = inside & (packed(key, tokens) >= keep.last)
    weight = tl.where(counts, 1.0, 0.0)
    if by_mass:
        weight = tl.where(counts, tl.exp(z - keep.max_z), 0.0)
    return key, counts, weight


@triton.jit
def _last_of_key(
    row,
    vocab,
    chunks,
    keep,
    at,
    goal,
    by_mass,
    sums,
    CHUNK: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """The last token kept among those of key `at`: as many as the goal leaves places for, lowest ids first."""
    column = tl.arange(0, ROWS)[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    above = tl.zeros([ROWS], tl.float64)
    tl.debug_barrier()
    for start in range(0, vocab, ROWS * CHUNK):
        key, counts, weight = _weights(row, start + column, vocab, keep, by_mass)
        above += tl.sum(tl.where(key > at, weight, 0.0), axis=1).to(tl.float64)
        equal = tl.sum((counts & (key == at)).to(tl.int32), axis=1)
        chunk = start // CHUNK + tl.arange(0, ROWS)
        tl.store(sums + chunk, equal.to(tl.float64), mask=chunk < chunks)
    tl.debug_barrier()
    left = goal - tl.sum(above, axis=0)
    each = tl.full([], 1.0, tl.float64)
    if by_mass:
        each = tl.exp(float_of(at) - keep.max_z).to(tl.float64)
    chunk = tl.arange(0, CHUNKS)
    equal = tl.load(sums + chunk, mask=chunk < chunks, other=0.0).to(tl.int32)
    many = tl.sum(equal, axis=0)
    last = first_of(at)
    if left < each * many:
        places = tl.maximum(tl.ceil(left / each).to(tl.int32), 1)
        before = tl.cumsum(equal, axis=0)
        crossing = tl.min(tl.where(before >= places, chunk, CHUNKS - 1), axis=0)
        places -= tl.sum(tl.where(chunk < crossing, equal, 0), axis=0)
        tokens = crossing * CHUNK + tl.arange(0, CHUNK)
        inside = tokens < vocab
        z = scaled(tl.load(row + tokens, mask=inside, other=float("-inf")), keep.temperature, keep.inverse)
        here = packed(key_of(z), tokens)
        equals = inside & (key_of(z) == at) & (here >= keep.last)
        kept = equals & (tl.cumsum(equals.to(tl.int32), axis=0) <= places)
        last = tl.min(tl.where(kept, here, -LEAST), axis=0)
    return last


@triton.jit
def is_rejected(tokens, rejected, many):
    """Which of `tokens` are in the list `rejected`, which is short."""
    hit = tokens < 0
    for i in range(0, many):
        hit = hit | (tokens == tl.load(rejected + i).to(tl.int32))
    return hit


@triton.jit
def inverse_cdf(running, weight, goal, BEYOND: tl.constexpr, SIZE: tl.constexpr):
    """The first place with weight whose running sum exceeds the goal; if rounding leaves none, the last with weight."""
    place = tl.arange(0, SIZE)
    first = tl.min(tl.where((weight > 0) & (running > goal), place, BEYOND), axis=0)
    final = tl.max(tl.where(weight > 0, place, 0), axis=0)
    return tl.where(first < BEYOND, first, final)


@triton.jit
def sample_from_candidates(
    ordered,
    many,
    keep,
    rejected,
    rejections,
    coin,
    sums,
    MAX_CANDIDATES: tl.constexpr,
    BLOCK: tl.constexpr,
    STEP: tl.constexpr,
):
    """Inverse-CDF sampling, in order of id, from the `many` kept candidates; `sums` holds their weights meanwhile."""
    slot = tl.arange(0, MAX_CANDIDATES)
    here = tl.load(ordered + slot, mask=slot < many, other=LEAST)
    p = tl.div_rn(tl.div_rn(tl.exp(value_of(here) - keep.max_z), keep.topk_mass), keep.topp_mass)
    weight = tl.where(slot < many, tl.div_rn(p, keep.minp_mass), 0.0)
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
def sample_from_row(
    row,
    vocab,
    chunks,
    keep,
    rejected,
    rejections,
    coin,
    sums,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    FROM_PROBS: tl.constexpr,
):
    """Inverse-CDF sampling from the whole row; `sums` holds each chunk's weight. First the chunk, then the token."""
    chunk = tl.arange(0, CHUNKS)
    weight = tl.zeros([CHUNKS], tl.float64)
    without = rejections
    attempt = tl.full([], 0, tl.int32)
    while attempt < 2:
        for i in range(0, rejections):  # chunks of rejected tokens are summed again; the second time, with them
            at = tl.load(rejected + i).to(tl.int32) // CHUNK
            p = _chunk_probs(row, at, vocab, keep, rejected, without, CHUNK, FROM_PROBS)
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
    at = inverse_cdf(running, weight, goal, CHUNKS, CHUNKS)
    before = tl.sum(tl.where(chunk == at, running - weight, 0.0), axis=0)
    p = _chunk_probs(row, at, vocab, keep, rejected, without, CHUNK, FROM_PROBS)
    return at * CHUNK + inverse_cdf(before + tl.cumsum(p, axis=0), p, goal, CHUNK, CHUNK)


@triton.jit
def _chunk_probs(row, at, vocab, keep, rejected, rejections, CHUNK: tl.constexpr, FROM_PROBS: tl.constexpr):
    """One chunk's probabilities in float64, those of rejected tokens 0."""
    tokens = at * CHUNK + tl.arange(0, CHUNK)
    inside = tokens < vocab
    x = tl.load(row + tokens, mask=inside, other=0.0)
    p = probability(x, tokens, keep, FROM_PROBS)
    gone = is_rejected(tokens, rejected, rejections)
    return tl.where(inside & ~gone, p, 0.0).to(tl.float64)
