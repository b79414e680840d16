# mypy: disallow-untyped-defs=False
"""Triton functions that filter one row of logits and sample from it: temperature, top-k, top-p, min-p, inverse CDF.

The r-th largest lane maximum is a lower bound of the r-th largest logit, so the tokens at or above it contain the r
largest of the row, and only the lanes whose maximum reaches it have to be read again. Sums over a row are float64."""

import triton
import triton.language as tl

from ddtree.kernels.sort_keys import FADES, LEAST, SIGN, first_of, float_of, key_of, packed, place_of, scaled, value_of


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
