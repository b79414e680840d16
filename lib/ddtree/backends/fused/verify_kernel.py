# mypy: disallow-untyped-defs=False
"""The fused verify kernel: one program walks one request's tree, from logits or probabilities to accepted tokens.

It reads only the rows of the nodes that the walk visits: prepare the row's filter, accept a child or sample the final
token, and go on from the child.
"""

import triton
import triton.language as tl

from ddtree.backends.fused.sampling_kernels import (
    RowFilter,
    candidate_bound,
    chunk_sums,
    chunk_sums_unfiltered,
    filter_candidates,
    filter_threshold,
    gather_candidates,
    probability,
    rank_sort,
    row_max_and_sumexp,
    sample_from_candidates,
    sample_from_row,
)
from ddtree.kernels.sort_keys import LEAST, LOG2_E

UNSPECIALISED = ("q", "max_depth")  # one compilation serves trees of every size
UNALIGNED = (
    "tokens", "next_token", "next_sibling", "coins", "final_coins", "temperatures", "top_ks", "top_ps", "min_ps",
    "predict", "accept_index", "accept_count", "status", "work",
)  # fmt: skip


@triton.jit(do_not_specialize=UNSPECIALISED, do_not_specialize_on_alignment=UNALIGNED)
def fused_verify(
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
    work,  # int64 [bs, SUMS + 2 * MAX_CANDIDATES + LANES + q]
    vocab,
    q,
    max_depth,
    FROM_PROBS: tl.constexpr,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
    UNROLL: tl.constexpr,
    GATHER_BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNKS: tl.constexpr,
    MAX_CANDIDATES: tl.constexpr,
    SUMS: tl.constexpr,
    TOPP_CANDIDATES: tl.constexpr,
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
    work += b.to(tl.int64) * (SUMS + 2 * MAX_CANDIDATES + LANES + q)
    sums = work.to(tl.pointer_type(tl.float64))
    unordered = work + SUMS
    ordered = unordered + MAX_CANDIDATES
    lanes = ordered + MAX_CANDIDATES
    rejected = lanes + LANES
    chunks = tl.cdiv(vocab, CHUNK)

    for start in range(0, q, STEP):
        slot = start + tl.arange(0, STEP)
        tl.store(predict + slot, -1, mask=slot < q)
    for start in range(0, max_depth + 1, STEP):
        slot = start + tl.arange(0, STEP)
        tl.store(accept_index + slot, -1, mask=slot <= max_depth)
    tl.debug_barrier()
    tl.store(accept_index, first.to(tl.int32))

    temperature, top_k, top_p, min_p = load_parameters(b, temperatures, top_ks, top_ps, min_ps, vocab, FROM_PROBS)
    filters = (top_k > 0) | (top_p < 1.0) | (min_p > 0.0)
    slope = tl.div_rn(tl.full([], LOG2_E, tl.float32), temperature)

    node = tl.full([], 0, tl.int32)
    depth = tl.full([], 0, tl.int32)
    bad = tl.full([], 0, tl.int32)  # 1 + a visited node whose logits are not finite
    walking = True
    while walking:
        row = rows + b.to(tl.int64) * request_stride + node.to(tl.int64) * node_stride
        keep, candidates, max_logit, finite = prepare_row(
            row, vocab, chunks, temperature, slope, top_k, top_p, min_p, filters, sums, unordered, ordered, lanes,
            FROM_PROBS, LANES, VEC, UNROLL, GATHER_BLOCK, CHUNK, ROWS, CHUNKS, MAX_CANDIDATES, TOPP_CANDIDATES,
            BLOCK, STEP,
        )  # fmt: skip
        bad = tl.where(finite > 0, 0, node + 1)
        if bad == 0:
            child, rejections = accept_child(
                row, vocab, keep, node, depth, q, max_depth, tokens, next_token, next_sibling, coins, rejected,
                FROM_PROBS,
            )  # fmt: skip
            if child >= 0:
                tl.store(predict + node, tl.load(tokens + child).to(tl.int32))
                node = child
                depth += 1
                tl.store(accept_index + depth, (first + node).to(tl.int32))
            else:
                tl.debug_barrier()
                final_token = sample_final(
                    row, vocab, chunks, slope, keep, candidates, max_logit, filters, rejected, rejections,
                    tl.load(final_coins + b), sums, ordered,
                    FROM_PROBS, CHUNK, ROWS, CHUNKS, MAX_CANDIDATES, BLOCK, STEP,
                )  # fmt: skip
                tl.store(predict + node, final_token)
                walking = False
        else:
            walking = False
    tl.store(accept_count + b, depth)
    tl.store(status + b, bad)


@triton.jit
def load_parameters(b, temperatures, top_ks, top_ps, min_ps, vocab, FROM_PROBS: tl.constexpr):
    """temperature, top_k, top_p and min_p of a request; a greedy one keeps the largest logit at temperature 1."""
    temperature = tl.full([], 1.0, tl.float32)
    top_k = tl.full([], 0, tl.int32)
    top_p = tl.full([], 1.0, tl.float32)
    min_p = tl.full([], 0.0, tl.float32)
    if not FROM_PROBS:
        temperature = tl.load(temperatures + b)
        greedy = temperature <= 0.0
        temperature = tl.where(greedy, 1.0, temperature)
        top_k = tl.load(top_ks + b)
        top_k = tl.where(top_k >= vocab, 0, top_k)
        top_k = tl.where(greedy, 1, top_k)
        top_p = tl.where(greedy, 1.0, tl.load(top_ps + b))
        min_p = tl.where(greedy, 0.0, tl.load(min_ps + b))
    return temperature, top_k, top_p, min_p


@triton.jit
def prepare_row(
    row,
    vocab,
    chunks,
    temperature,
    slope,
    top_k,
    top_p,
    min_p,
    filters,
    sums,
    unordered,
    ordered,
    lanes,
    FROM_PROBS: tl.constexpr,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
    UNROLL: tl.constexpr,
    GATHER_BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNKS: tl.constexpr,
    MAX_CANDIDATES: tl.constexpr,
    TOPP_CANDIDATES: tl.constexpr,
    BLOCK: tl.constexpr,
    STEP: tl.constexpr,
):
    """The row's filter, how many ordered candidates it keeps (0: sample from the whole row), its largest logit, and 1
    if the row is finite.

    The filters run on few candidates where these are enough to decide, else on the whole row.
    """
    one = tl.full([], 1.0, tl.float32)
    zero = tl.full([], 0.0, tl.float32)
    inverse = tl.div_rn(one, temperature)
    max_logit = zero
    max_z = zero
    row_mass = one
    last = tl.full([], LEAST, tl.int64)
    topk_mass = one
    topp_mass = one
    min_prob = zero
    minp_mass = one
    candidates = tl.full([], 0, tl.int32)
    finite = tl.full([], 1, tl.int32)
    if not FROM_PROBS:
        lane_max, max_logit, max_z, row_mass = row_max_and_sumexp(
            row, vocab, temperature, inverse, slope, top_k == 0, LANES, VEC, UNROLL
        )
        finite = tl.where((max_z == float("inf")) | (max_z == float("-inf")), 0, 1)
        if finite > 0:
            if filters:
                used_lanes = tl.minimum(tl.cdiv(vocab, VEC), LANES)
                if (top_k > 0) & (top_k <= used_lanes) | (top_k == 0) & (top_p < 1.0):
                    wanted = tl.where(top_k > 0, top_k, tl.minimum(used_lanes, TOPP_CANDIDATES))
                    bound = candidate_bound(lane_max, wanted, max_z)
                    many = gather_candidates(
                        row, vocab, temperature, inverse, lane_max, bound, lanes, unordered,
                        LANES, VEC, GATHER_BLOCK, MAX_CANDIDATES,
                    )  # fmt: skip
                    if many <= MAX_CANDIDATES:
                        rank_sort(unordered, ordered, many, BLOCK, STEP)
                        if many <= BLOCK:  # most often, and several times as fast
                            count, end, topk_mass, topp_mass, minp_mass, enough = filter_candidates(
                                ordered, many, max_z, top_k, top_p, min_p, row_mass, BLOCK
                            )
                        else:
                            count, end, topk_mass, topp_mass, minp_mass, enough = filter_candidates(
                                ordered, many, max_z, top_k, top_p, min_p, row_mass, MAX_CANDIDATES
                            )
                        if enough:
                            candidates = count
                            last = end
                if candidates == 0:
                    last, topk_mass, topp_mass, min_prob, minp_mass = filter_row(
                        row, vocab, chunks, temperature, inverse, max_z, top_k, top_p, min_p, row_mass, sums,
                        CHUNK, ROWS, CHUNKS,
                    )  # fmt: skip
            else:
                topk_mass = row_mass
    keep = RowFilter(temperature, inverse, max_z, last, topk_mass, topp_mass, min_prob, minp_mass)
    return keep, candidates, max_logit, finite


@triton.jit
def filter_row(
    row,
    vocab,
    chunks,
    temperature,
    inverse,
    max_z,
    top_k,
    top_p,
    min_p,
    row_mass,
    sums,
    CHUNK: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """Top-k, top-p and min-p on the whole row, one after the other: the last five values of its `RowFilter`."""
    last = tl.full([], LEAST, tl.int64)
    topk_mass = row_mass
    topp_mass = tl.full([], 1.0, tl.float32)
    min_prob = tl.full([], 0.0, tl.float32)
    minp_mass = topp_mass
    filter = tl.full([], 0, tl.int32)
    while filter < 3:  # a loop, so that the code of the passes is compiled once
        if (filter == 0) & (top_k > 0) | (filter == 1) & (top_p < 1.0) | (filter == 2) & (min_p > 0.0):
            if filter < 2:
                before = RowFilter(temperature, inverse, max_z, last, topk_mass, topp_mass, min_prob, minp_mass)
                goal = tl.where(filter == 0, top_k.to(tl.float64), top_p.to(tl.float64) * topk_mass.to(tl.float64))
                last = filter_threshold(row, vocab, chunks, before, goal, filter == 1, sums, CHUNK, ROWS, CHUNKS)
            else:
                min_prob = min_p * tl.div_rn(tl.div_rn(minp_mass, topk_mass), topp_mass)
            after = RowFilter(temperature, inverse, max_z, last, topk_mass, topp_mass, min_prob, minp_mass)
            mass = chunk_sums(row, vocab, chunks, after, sums, CHUNK, ROWS, False).to(tl.float32)
            topk_mass = tl.where(filter == 0, mass, topk_mass)
            topp_mass = tl.where(filter == 1, mass, topp_mass)
            minp_mass = tl.where(filter == 2, mass, minp_mass)
        filter += 1
    return last, topk_mass, topp_mass, min_prob, minp_mass


@triton.jit
def accept_child(
    row,
    vocab,
    keep,
    node,
    depth,
    q,
    max_depth,
    tokens,
    next_token,
    next_sibling,
    coins,
    rejected,
    FROM_PROBS: tl.constexpr,
):
    """The first child whose running sum of probability exceeds the node's coin, or -1; how many were rejected.

    The tokens of rejected children are written to `rejected`.
    """
    child = tl.load(next_token + node).to(tl.int32)
    coin = tl.load(coins + node)
    running = tl.full([], 0.0, tl.float32)
    rejections = tl.full([], 0, tl.int32)
    accepted = tl.full([], -1, tl.int32)
    tries = tl.full([], 0, tl.int32)
    while (child >= 0) & (child < q) & (tries < q) & (depth < max_depth):
        token = tl.load(tokens + child).to(tl.int32)
        inside = (token >= 0) & (token < vocab)
        following = tl.load(next_sibling + child).to(tl.int32)  # early: it need not wait for the logit
        x = tl.load(row + token, mask=inside, other=0.0)
        p = tl.where(inside, probability(x, token, keep, FROM_PROBS), 0.0)
        running += p
        if (p > 0.0) & (coin < running):
            accepted = child
            child = accepted * 0 - 1
        else:
            if inside:
                tl.store(rejected + rejections, token.to(tl.int64))
                rejections += 1
            child = following
        tries += 1
    return accepted, rejections


@triton.jit
def sample_final(
    row,
    vocab,
    chunks,
    slope,
    keep,
    candidates,
    max_logit,
    filters,
    rejected,
    rejections,
    coin,
    sums,
    ordered,
    FROM_PROBS: tl.constexpr,
    CHUNK: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNKS: tl.constexpr,
    MAX_CANDIDATES: tl.constexpr,
    BLOCK: tl.constexpr,
    STEP: tl.constexpr,
):
    """The final token: inverse-CDF sampling from the filtered row without the rejected tokens."""
    token = tl.full([], 0, tl.int32)
    if candidates > 0:
        token = sample_from_candidates(
            ordered, candidates, keep, rejected, rejections, coin, sums, MAX_CANDIDATES, BLOCK, STEP
        )
    else:
        if FROM_PROBS or filters:
            chunk_sums(row, vocab, chunks, keep, sums, CHUNK, ROWS, FROM_PROBS)
        else:
            chunk_sums_unfiltered(row, vocab, chunks, slope, max_logit, keep.topk_mass, sums, CHUNK, ROWS)
        token = sample_from_row(row, vocab, chunks, keep, rejected, rejections, coin, sums, CHUNK, CHUNKS, FROM_PROBS)
    return token
