# mypy: disallow-untyped-defs=False
"""Triton kernels of the tree builder: top-k tokens, best prefixes, links, attention mask and accepted path."""

import triton
import triton.language as tl

from ddtree.kernels.sort_keys import LEAST, LOG2_E, key_of, packed, place_of, value_of

# Triton need not know the alignment of these, so that one compilation serves every call of a shape.
TOPK_UNALIGNED = ("temperatures", "work", "tokens_out", "logps_out")


@triton.jit
def _temperature_of(row, temperatures, depth, EACH: tl.constexpr):
    """`temperatures` is one number, or where EACH a pointer to one for each request."""
    if EACH:
        return tl.load(temperatures + row // depth)
    else:
        return temperatures + 0.0


@triton.jit(do_not_specialize_on_alignment=TOPK_UNALIGNED)
def chunk_maxima(
    logits,
    row_stride,
    temperatures,
    depth,
    work,  # [rows, chunks] of maxima, [rows, parts] of part_maxima, [rows, parts] of part_sums
    vocab,
    chunks,
    parts,
    EACH: tl.constexpr,
    CHUNK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """One part (ROWS chunks) of one row: the chunks' largest logits, and the part's largest z with its sum.

    The sum is of exp(z - largest z), z being logit / temperature; NaN where the part holds NaN or +inf.
    """
    row, part, rows = tl.program_id(0), tl.program_id(1), tl.num_programs(0)
    maxima, part_maxima = work, work + rows * chunks
    part_sums = part_maxima + rows * parts
    temperature = _temperature_of(row, temperatures, depth, EACH)
    chunk = part * ROWS + tl.arange(0, ROWS)
    tokens = chunk[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    first = logits + row.to(tl.int64) * row_stride
    x = tl.load(first + tokens, mask=tokens < vocab, other=float("-inf")).to(tl.float32)
    largest = tl.max(x, axis=1)  # passes over NaN
    tl.store(maxima + row * chunks + chunk, largest, mask=chunk < chunks)
    part_max = tl.max(largest, axis=0)
    below = tl.where(part_max == float("-inf"), 0.0, part_max)
    slope = tl.div_rn(tl.full([], LOG2_E, tl.float32), temperature)  # no division for each logit
    part_sum = tl.sum(tl.sum(tl.exp2((x - below) * slope), axis=1), axis=0)  # NaN of NaN, and of +inf - +inf
    tl.store(part_maxima + row * parts + part, tl.div_rn(part_max, temperature))
    tl.store(part_sums + row * parts + part, part_sum)


@triton.jit(do_not_specialize_on_alignment=TOPK_UNALIGNED)
def topk_from_chunks(
    logits,
    row_stride,
    temperatures,
    depth,
    work,  # as `chunk_maxima` left it
    tokens_out,
    logps_out,
    vocab,
    chunks,
    parts,
    branch,
    EACH: tl.constexpr,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    PARTS: tl.constexpr,
    BRANCH: tl.constexpr,
):
    """One row's `branch` most probable tokens, best first and ties to the lower id, and their log-probabilities."""
    row, rows = tl.program_id(0), tl.num_programs(0)
    maxima, part_maxima = work, work + rows * chunks
    part_sums = part_maxima + rows * parts
    temperature = _temperature_of(row, temperatures, depth, EACH)
    part = tl.arange(0, PARTS)
    part_max = tl.load(part_maxima + row * parts + part, mask=part < parts, other=float("-inf"))
    part_sum = tl.load(part_sums + row * parts + part, mask=part < parts, other=0.0)
    top = tl.max(part_max, axis=0)
    total = tl.sum(part_sum * tl.exp(part_max - tl.where(top == float("-inf"), 0.0, top)), axis=0)

    chunk = tl.arange(0, CHUNKS)
    largest = tl.load(maxima + row * chunks + chunk, mask=chunk < chunks, other=float("-inf")) + 0.0
    ordered = tl.where(chunk < chunks, packed(key_of(largest), chunk), LEAST)
    best = place_of(tl.topk(ordered, BRANCH))  # the best tokens lie in the chunks of largest maxima
    tokens = best[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    inside = (tokens < vocab) & (best[:, None] < chunks)
    first = logits + row.to(tl.int64) * row_stride
    x = tl.load(first + tokens, mask=inside, other=float("-inf")).to(tl.float32) + 0.0
    candidates = tl.where(inside, packed(key_of(x), tokens), LEAST)
    chosen = tl.topk(tl.reshape(candidates, [BRANCH * CHUNK]), BRANCH)

    z = tl.div_rn(value_of(chosen), temperature)
    logp = (z - top) - tl.log(total)
    logp = tl.where(logp != logp, float("-inf"), logp)  # a position without a distribution drafts nothing
    rank = tl.arange(0, BRANCH)
    tl.store(tokens_out + row * branch + rank, place_of(chosen).to(tl.int64), mask=rank < branch)
    tl.store(logps_out + row * branch + rank, logp, mask=rank < branch)


BUILD_UNALIGNED = (
    "tokens_in", "logps_in", "roots", "pair_parent", "pair_token", "first_pairs", "first_entries", "entry_depth",
    "work", "tokens_out", "parents_out", "depths_out", "node_logws_out", "sizes_out",
)  # fmt: skip


@triton.jit(do_not_specialize_on_alignment=BUILD_UNALIGNED)
def select_nodes(
    tokens_in,
    logps_in,
    roots,
    pair_parent,
    pair_token,
    first_pairs,
    first_entries,
    entry_depth,
    work,  # int32 [bs, 3, entries]
    tokens_out,
    parents_out,
    depths_out,
    node_logws_out,
    sizes_out,
    topk_tokens,
    entries,
    width,
    DEPTH: tl.constexpr,
    PAIRS: tl.constexpr,
    KEPT: tl.constexpr,
    ENTRIES: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """The tree of one request. `work` holds a weight, a place and a rank for each entry, the root among them.

    An entry is one of the prefixes kept at some depth, depths one after another, the root being entry 0.
    """
    request = tl.program_id(0)
    tokens_in += request * topk_tokens
    logps_in += request * topk_tokens
    work += request * 3 * entries
    weights = work.to(tl.pointer_type(tl.float32))
    places = work + entries
    ranks = places + entries
    tl.store(weights, 0.0)
    tl.store(places, 0)
    pair = tl.arange(0, PAIRS)
    kept = tl.arange(0, KEPT)
    for d in range(DEPTH):
        first = tl.load(first_pairs + d)
        count = tl.load(first_pairs + d + 1) - first
        entry = tl.load(first_entries + d + 1)
        size = tl.load(first_entries + d + 2) - entry
        tl.debug_barrier()  # the depth above is written
        parent = tl.load(pair_parent + first + pair, mask=pair < count, other=0)
        token = tl.load(pair_token + first + pair, mask=pair < count, other=0)
        weight = tl.load(weights + parent) + tl.load(logps_in + token)
        ordered = tl.where(pair < count, packed(key_of(weight + 0.0), pair), LEAST)
        best = tl.topk(ordered, KEPT)
        tl.store(weights + entry + kept, value_of(best), mask=kept < size)
        tl.store(places + entry + kept, first + place_of(best), mask=kept < size)
    tl.debug_barrier()

    entry = tl.arange(0, ENTRIES)
    weight = tl.load(weights + entry, mask=entry < entries, other=float("-inf"))
    ordered = tl.where(entry < entries, packed(key_of(weight), entry), LEAST)
    best = tl.topk(ordered, WIDTH)  # a parent stands before a child of equal weight, and the root first
    node = tl.arange(0, WIDTH)
    chosen = place_of(best)
    there = (node < width) & (best > LEAST)
    node_logw = tl.where(there, value_of(best), float("-inf"))
    real = there & (node_logw > float("-inf"))
    tl.store(ranks + chosen, node, mask=there)
    tl.debug_barrier()

    place = tl.load(places + chosen, mask=real, other=0)
    above = tl.load(pair_parent + place, mask=real & (node > 0), other=0)
    parent = tl.where(real & (node > 0), tl.load(ranks + above, mask=real & (node > 0), other=0), -1)
    topk_index = tl.load(pair_token + place, mask=real & (node > 0), other=0)
    token = tl.load(tokens_in + topk_index, mask=real & (node > 0), other=0)
    token = tl.where(node == 0, tl.load(roots + request).to(tl.int64), token)
    level = tl.load(entry_depth + chosen, mask=real, other=0)
    out = request * width + node
    tl.store(tokens_out + out, token, mask=node < width)
    tl.store(parents_out + out, parent.to(tl.int64), mask=node < width)
    tl.store(depths_out + out, level.to(tl.int64), mask=node < width)
    tl.store(node_logws_out + out, node_logw, mask=node < width)
    tl.store(sizes_out + request, tl.sum(real.to(tl.int64), axis=0))


LINK_UNALIGNED = ("parents", "node_logws", "sizes", "index", "next_token", "next_sibling")
LINK_UNSPECIALISED = ("q",)


@triton.jit(do_not_specialize=LINK_UNSPECIALISED, do_not_specialize_on_alignment=LINK_UNALIGNED)
def link_nodes(
    parents,
    node_logws,
    sizes,
    index,
    next_token,
    next_sibling,
    q,
    NODES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """BLOCK nodes of one request: a child that stands first, a sibling that stands next, -1 where there is none."""
    request = tl.program_id(0)
    first = request.to(tl.int64) * q
    size = tl.load(sizes + request)
    other = tl.arange(0, NODES)
    drafted = (other > 0) & (other < size)
    parent = tl.load(parents + first + other, mask=drafted, other=-1).to(tl.int32)
    weight = tl.load(node_logws + first + other, mask=drafted, other=0.0)
    order = tl.where(
        drafted, packed(key_of(weight + 0.0), other), LEAST
    )  # the heavier first, equal ones as in the array

    node = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    here = node < q
    mine = (node > 0) & (node < size)
    my_parent = tl.load(parents + first + node, mask=mine, other=-2).to(tl.int32)
    my_weight = tl.load(node_logws + first + node, mask=mine, other=0.0)
    my_order = packed(key_of(my_weight + 0.0), node)
    is_child = parent[None, :] == node[:, None]
    follows = (parent[None, :] == my_parent[:, None]) & (order[None, :] < my_order[:, None])
    child = tl.max(tl.where(is_child, order[None, :], LEAST), axis=1)
    sibling = tl.max(tl.where(follows, order[None, :], LEAST), axis=1)
    tl.store(index + first + node, first + node, mask=here)
    tl.store(next_token + first + node, tl.where(child > LEAST, place_of(child), -1).to(tl.int64), mask=here)
    tl.store(next_sibling + first + node, tl.where(sibling > LEAST, place_of(sibling), -1).to(tl.int64), mask=here)


MASK_UNALIGNED = ("parents", "prefix_len", "mask")
MASK_UNSPECIALISED = ("q", "key_len")


@triton.jit(do_not_specialize=MASK_UNSPECIALISED, do_not_specialize_on_alignment=MASK_UNALIGNED)
def write_tree_mask(
    parents,
    prefix_len,
    mask,  # [bs, q, key_len]
    q,
    key_len,
    closed,  # what a key gets that the node may not see
    BLOCK: tl.constexpr,
):
    """BLOCK keys of one node: 0 where it may look."""
    row = tl.program_id(0)
    request, node = row // q, row % q
    parents += request.to(tl.int64) * q
    start = tl.program_id(1) * BLOCK
    key = start + tl.arange(0, BLOCK)
    behind = key - tl.load(prefix_len + request)  # the node of each key; negative in the prefix
    open_ = behind < 0
    hops = 0
    above = node
    while (above >= 0) & (hops < q):
        open_ = open_ | (behind == above)
        above = tl.load(parents + above).to(tl.int32)
        hops += 1
    out = mask + row.to(tl.int64) * key_len + key
    tl.store(out, tl.where(open_, 0.0, closed).to(mask.dtype.element_ty), mask=key < key_len)


ACCEPTED_UNALIGNED = ("predict", "accept_index", "accept_count", "prefix_len", "path", "tokens", "per_request")
ACCEPTED_UNSPECIALISED = ("batch", "q", "length")


@triton.jit(do_not_specialize=ACCEPTED_UNSPECIALISED, do_not_specialize_on_alignment=ACCEPTED_UNALIGNED)
def map_accepted(
    predict, accept_index, accept_count, prefix_len, path, tokens, per_request, batch, q, length, DEPTHS: tl.constexpr
):
    """One request's row of `path` and `tokens` [batch, length]; of `per_request` [3, batch] its column: the path's
    length, the final token and the prefix's new length."""
    request = tl.program_id(0)
    first = request.to(tl.int64) * length
    depth = tl.arange(0, DEPTHS)
    here = depth < length
    flat = tl.load(accept_index + first + depth, mask=here, other=-1)
    kept = flat >= 0
    after = tl.load(predict + flat, mask=kept, other=-1).to(tl.int64)
    tl.store(path + first + depth, tl.where(kept, flat - request * q, -1).to(tl.int64), mask=here)
    tl.store(tokens + first + depth, after, mask=here)
    count = tl.load(accept_count + request).to(tl.int64)
    tl.store(per_request + request, count + 1)
    tl.store(per_request + batch + request, tl.sum(tl.where(depth == count, after, 0)))
    tl.store(per_request + 2 * batch + request, tl.load(prefix_len + request).to(tl.int64) + count + 1)
