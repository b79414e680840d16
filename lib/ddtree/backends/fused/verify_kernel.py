# mypy: disallow-untyped-defs=False
"""The kernel: one program walks one request's tree, and reads no row but those of the nodes that it comes to."""

import triton
import triton.language as tl

from ddtree.backends.fused.sampling_kernels import (
    bound_of,
    cut_of,
    draw_from_candidates,
    draw_from_row,
    filtered,
    gather,
    probability,
    put_in_order,
    survey,
    weigh,
    weigh_unfiltered,
)
from ddtree.kernels.sort_keys import LEAST, LOG2_E

UNSPECIAL = ("q", "max_depth")  # one compilation serves trees of every size
SMALL = (
    "tokens", "next_token", "next_sibling", "coins", "final_coins", "temperatures", "top_ks", "top_ps", "min_ps",
    "predict", "accept_index", "accept_count", "status", "work",
)  # fmt: skip


@triton.jit(do_not_specialize=UNSPECIAL, do_not_specialize_on_alignment=SMALL)
def walk(
    rows,  # logits or probabilities [bs, q, vocab]
    request_stride,
    node_stride,
    tokens,
    next_token,
    next_sibling,
    coins,  # each [bs, q]
    final_coins,
    temperatures,
    top_ks,
    top_ps,
    min_ps,  # each [bs]
    predict,  # [bs * q]
    accept_index,  # [bs, max_depth + 1]
    accept_count,
    status,  # each [bs]
    work,  # int64 [bs, SUMS + 2 * ROOM + STRANDS + q]
    vocab,
    q,
    max_depth,
    FROM_PROBS: tl.constexpr,
    STRANDS: tl.constexpr,
    WIDTH: tl.constexpr,
    TALL: tl.constexpr,
    PIECES: tl.constexpr,
    CHUNK: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNKS: tl.constexpr,
    ROOM: tl.constexpr,
    SUMS: tl.constexpr,
    NUCLEUS: tl.constexpr,
    BLOCK: tl.constexpr,
    STEP: tl.constexpr,
):
    b = tl.program_id(0)
    first = b.to(tl.int64) * q
    tokens += first
    next_token += first
    next_sibling += first
    coins += first
    predict += first
    accept_index += b.to(tl.int64) * (max_depth + 1)
    work += b.to(tl.int64) * (SUMS + 2 * ROOM + STRANDS + q)
    sums = work.to(tl.pointer_type(tl.float64))
    unordered = work + SUMS
    ordered = unordered + ROOM
    chosen = ordered + ROOM
    rejected = chosen + STRANDS
    chunks = tl.cdiv(vocab, CHUNK)
    strands = tl.minimum(tl.cdiv(vocab, WIDTH), STRANDS)  # those that hold a token

    for start in range(0, q, STEP):
        slot = start + tl.arange(0, STEP)
        tl.store(predict + slot, -1, mask=slot < q)
    for start in range(0, max_depth + 1, STEP):
        slot = start + tl.arange(0, STEP)
        tl.store(accept_index + slot, -1, mask=slot <= max_depth)
    tl.debug_barrier()
    tl.store(accept_index, first.to(tl.int32))

    one = tl.full([], 1.0, tl.float32)
    none = tl.full([], 0.0, tl.float32)
    temperature = one
    top_k = tl.full([], 0, tl.int32)
    top_p = one
    min_p = none
    if not FROM_PROBS:
        temperature = tl.load(temperatures + b)
        greedy = temperature <= 0.0  # the largest logit alone, at any temperature
        temperature = tl.where(greedy, 1.0, temperature)
        top_k = tl.load(top_ks + b)
        top_k = tl.where(top_k >= vocab, 0, top_k)
        top_k = tl.where(greedy, 1, top_k)
        top_p = tl.where(greedy, 1.0, tl.load(top_ps + b))
        min_p = tl.where(greedy, 0.0, tl.load(min_ps + b))
    inverse = tl.div_rn(one, temperature)
    slope = tl.div_rn(one * LOG2_E, temperature)
    filters = (top_k > 0) | (top_p < 1.0) | (min_p > 0.0)

    node = tl.full([], 0, tl.int32)
    depth = tl.full([], 0, tl.int32)
    bad = tl.full([], 0, tl.int32)
    walking = True
    while walking:
        row = rows + b.to(tl.int64) * request_stride + node.to(tl.int64) * node_stride
        highest = none
        top = none
        row_total = one
        last = tl.full([], LEAST, tl.int64)
        total = one
        share = one
        floor = none
        rest = one
        kept = tl.full([], 0, tl.int32)  # of the candidates; 0 where the whole row is drawn from
        if not FROM_PROBS:
            peak, highest, top, row_total = survey(
                row, vocab, temperature, inverse, slope, top_k == 0, STRANDS, WIDTH, TALL
            )
            bad = tl.where((top == float("inf")) | (top == float("-inf")), node + 1, 0)
            if bad == 0:
                if filters:
                    if (top_k > 0) & (top_k <= strands) | (top_k == 0) & (top_p < 1.0):
                        wanted = tl.where(top_k > 0, top_k, tl.minimum(strands, NUCLEUS))
                        bound = bound_of(peak, wanted, top)
                        many = gather(
                            row, vocab, temperature, inverse, peak, bound, chosen, unordered,
                            STRANDS, WIDTH, PIECES, ROOM,
                        )  # fmt: skip
                        if many <= ROOM:
                            put_in_order(unordered, ordered, many, BLOCK, STEP)
                            if many <= BLOCK:  # most often, and several times as fast
                                count, end, total, share, rest, enough = filtered(
                                    ordered, many, top, top_k, top_p, min_p, row_total, BLOCK
                                )
                            else:
                                count, end, total, share, rest, enough = filtered(
                                    ordered, many, top, top_k, top_p, min_p, row_total, ROOM
                                )
                            if enough:
                                kept = count
                                last = end
                    if kept == 0:
                        last, total, share, floor, rest = _searched(
                            row, vocab, chunks, temperature, inverse, top, top_k, top_p, min_p, row_total, sums,
                            CHUNK, ROWS, CHUNKS,
                        )  # fmt: skip
                else:
                    total = row_total
        if bad == 0:
            child = tl.load(next_token + node).to(tl.int32)
            coin = tl.load(coins + node)
            running = none
            rejections = tl.full([], 0, tl.int32)
            accepted = tl.full([], -1, tl.int32)
            tries = tl.full([], 0, tl.int32)
            while (child >= 0) & (child < q) & (tries < q) & (depth < max_depth):
                token = tl.load(tokens + child).to(tl.int32)
                inside = (token >= 0) & (token < vocab)
                following = tl.load(next_sibling + child).to(tl.int32)  # early: it need not wait for the logit
                x = tl.load(row + token, mask=inside, other=0.0)
                p = probability(x, token, temperature, inverse, top, last, total, share, floor, rest, FROM_PROBS)
                p = tl.where(inside, p, 0.0)
                running += p
                if (p > 0.0) & (coin < running):
                    accepted = child
                    tl.store(predict + node, token)
                    child = accepted * 0 - 1
                else:
                    if inside:
                        tl.store(rejected + rejections, token.to(tl.int64))
                        rejections += 1
                    child = following
                tries += 1
            if accepted >= 0:
                node = accepted
                depth += 1
                tl.store(accept_index + depth, (first + node).to(tl.int32))
            else:
                tl.debug_barrier()
                last_coin = tl.load(final_coins + b)
                drawn = tl.full([], 0, tl.int32)
                if kept > 0:
                    drawn = draw_from_candidates(
                        ordered, kept, top, total, share, rest, rejected, rejections, last_coin, sums, ROOM, BLOCK, STEP
                    )
                else:
                    if FROM_PROBS or filters:
                        weigh(
                            row, vocab, chunks, temperature, inverse, top, last, total, share, floor, rest, sums,
                            CHUNK, ROWS, FROM_PROBS,
                        )  # fmt: skip
                    else:
                        weigh_unfiltered(row, vocab, chunks, slope, highest, total, sums, CHUNK, ROWS)
                    drawn = draw_from_row(
                        row, vocab, chunks, temperature, inverse, top, last, total, share, floor, rest,
                        rejected, rejections, last_coin, sums, CHUNK, CHUNKS, FROM_PROBS,
                    )  # fmt: skip
                tl.store(predict + node, drawn)
                walking = False
        else:
            walking = False
    tl.store(accept_count + b, depth)
    tl.store(status + b, bad)


@triton.jit
def _searched(
    row,
    vocab,
    chunks,
    temperature,
    inverse,
    top,
    top_k,
    top_p,
    min_p,
    row_total,
    sums,
    CHUNK: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """The filters on the whole row, one after the other; see `probability` for what is returned."""
    last = tl.full([], LEAST, tl.int64)
    total = row_total
    share = tl.full([], 1.0, tl.float32)
    floor = tl.full([], 0.0, tl.float32)
    rest = share
    filter = tl.full([], 0, tl.int32)
    while filter < 3:  # a loop, so that the code of the passes stands once
        if (filter == 0) & (top_k > 0) | (filter == 1) & (top_p < 1.0) | (filter == 2) & (min_p > 0.0):
            if filter < 2:
                goal = tl.where(filter == 0, top_k.to(tl.float64), top_p.to(tl.float64) * total.to(tl.float64))
                last = cut_of(
                    row, vocab, chunks, temperature, inverse, top, last, goal, filter == 1, sums, CHUNK, ROWS, CHUNKS
                )
            else:
                floor = min_p * tl.div_rn(tl.div_rn(rest, total), share)
            mass = weigh(
                row, vocab, chunks, temperature, inverse, top, last, total, share, floor, rest, sums, CHUNK, ROWS, False
            ).to(tl.float32)
            total = tl.where(filter == 0, mass, total)
            share = tl.where(filter == 1, mass, share)
            rest = tl.where(filter == 2, mass, rest)
        filter += 1
    return last, total, share, floor, rest
