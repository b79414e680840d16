# mypy: disallow-untyped-defs=False
"""Triton kernels of tree attention: `attend` computes one split of the keys, `combine_splits` adds the splits up.

Exponentials are of base 2. A split of which a node sees nothing has m_i = -inf, and its acc are never read.
"""

import triton
import triton.language as tl

NEG_INF = tl.constexpr(-float("inf"))


@triton.jit
def online_softmax(queries, keys, values, seen, scale, acc, m_i, l_i):
    """One step of the online softmax: queries [M, D], keys [D, N], values [N, D], attending where `seen` [M, N]."""
    score = tl.where(seen, tl.dot(queries, keys, input_precision="ieee") * scale, NEG_INF)
    m_new = tl.maximum(m_i, tl.max(score, axis=1))
    base = tl.where(m_new == NEG_INF, 0.0, m_new)  # -inf minus itself is NaN
    weight = tl.exp2(score - base[:, None])
    before = tl.exp2(m_i - base)
    acc = acc * before[:, None] + tl.dot(weight.to(values.dtype), values, input_precision="ieee")
    return acc, m_new, l_i * before + tl.sum(weight, axis=1)


@triton.jit
def attend(
    q, k, v, key_rows, value_rows, indptr, indices, mask, mask_indptr, split_acc, split_m, split_l,
    scale, nodes, size, q_row, k_row, v_row, key_slot, value_slot,
    HEADS: tl.constexpr, GROUP: tl.constexpr, BLOCKS: tl.constexpr, NUM_SPLITS: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    request, split = tl.program_id(0).to(tl.int64), tl.program_id(2)
    kv_head = tl.program_id(1) // BLOCKS
    place = tl.program_id(1) % BLOCKS * M + tl.arange(0, M)  # of a node's head in the group, node by node
    node, head = place // GROUP, kv_head * GROUP + place % GROUP
    live = node < nodes
    lane, column = tl.arange(0, D), tl.arange(0, N)
    inside = lane < size
    first_node = request * nodes
    rows = (first_node + node) * q_row + head * size
    queries = tl.load(q + rows[:, None] + lane, mask=live[:, None] & inside, other=0.0)
    acc = tl.zeros([M, D], dtype=tl.float32)
    m_i = tl.full([M], NEG_INF, dtype=tl.float32)
    l_i = tl.zeros([M], dtype=tl.float32)

    first_index = tl.load(indptr + request)
    prefix = tl.load(indptr + request + 1) - first_index
    share = tl.cdiv(tl.cdiv(prefix, NUM_SPLITS - 1), N) * N  # of the prefix, for each split except the last
    end = tl.minimum(prefix, (split + 1) * share)
    in_prefix = split < NUM_SPLITS - 1
    for first in range(split * share, tl.where(in_prefix, end, 0), N):
        there = first + column < end
        slot = tl.load(indices + first_index + first + column, mask=there, other=0).to(tl.int64)
        reads = there[:, None] & inside
        keys = tl.load(key_rows + (slot * key_slot + kv_head * size)[:, None] + lane, mask=reads, other=0.0)
        values = tl.load(value_rows + (slot * value_slot + kv_head * size)[:, None] + lane, mask=reads, other=0.0)
        seen = live[:, None] & there
        acc, m_i, l_i = online_softmax(queries, tl.trans(keys), values, seen, scale, acc, m_i, l_i)

    mask_row = tl.load(mask_indptr + request) + node.to(tl.int64) * (prefix + nodes) + prefix
    for first in range(0, tl.where(in_prefix, 0, nodes), N):
        there = first + column < nodes
        other = first_node + first + column
        reads = there[:, None] & inside
        keys = tl.load(k + (other * k_row + kv_head * size)[:, None] + lane, mask=reads, other=0.0)
        values = tl.load(v + (other * v_row + kv_head * size)[:, None] + lane, mask=reads, other=0.0)
        asked = live[:, None] & there
        seen = asked & (tl.load(mask + mask_row[:, None] + first + column, mask=asked, other=0) != 0)
        acc, m_i, l_i = online_softmax(queries, tl.trans(keys), values, seen, scale, acc, m_i, l_i)

    found = ((first_node + node) * HEADS + head) * NUM_SPLITS + split
    nonempty = live & (m_i > NEG_INF)
    tl.store(split_m + found, m_i, mask=live)
    tl.store(split_l + found, l_i, mask=nonempty)
    tl.store(split_acc + found[:, None] * size + lane, acc, mask=nonempty[:, None] & inside)


@triton.jit
def combine_splits(split_acc, split_m, split_l, out, size, NUM_SPLITS: tl.constexpr, D: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)  # of a node's head
    split, lane = tl.arange(0, NUM_SPLITS), tl.arange(0, D)
    inside = lane < size
    m_i = tl.load(split_m + row * NUM_SPLITS + split)
    nonempty = m_i > NEG_INF
    m_max = tl.max(m_i, axis=0)
    weight = tl.exp2(m_i - tl.where(m_max == NEG_INF, 0.0, m_max))  # 0 for an empty split
    l_i = tl.sum(weight * tl.load(split_l + row * NUM_SPLITS + split, mask=nonempty, other=0.0), axis=0)
    reads = nonempty[:, None] & inside
    acc = tl.load(split_acc + (row * NUM_SPLITS + split)[:, None] * size + lane, mask=reads, other=0.0)
    total = tl.sum(weight[:, None] * acc, axis=0)
    answer = total / tl.where(l_i > 0, l_i, 1.0)  # a graph's padding may see nothing; its rows are never read
    tl.store(out + row * size + lane, answer.to(out.dtype.element_ty), mask=inside)
