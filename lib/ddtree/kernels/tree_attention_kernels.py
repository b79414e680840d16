# mypy: disallow-untyped-defs=False
"""The kernels of `tree_attention`: `attend` meets a part of the keys for all heads that share them, `join` adds.

Exponentials are of base 2. A part of which a node sees nothing has the peak -inf, and its sums are never read.
"""

import triton
import triton.language as tl

NOTHING = tl.constexpr(-float("inf"))


@triton.jit
def fold(queries, keys, values, seen, scale, sums, peak, mass):
    """Queries [M, D] meet keys [D, N] and values [N, D] where `seen` [M, N]: the running softmax, one step on."""
    score = tl.where(seen, tl.dot(queries, keys, input_precision="ieee") * scale, NOTHING)
    new_peak = tl.maximum(peak, tl.max(score, axis=1))
    base = tl.where(new_peak == NOTHING, 0.0, new_peak)  # -inf less itself is no number
    weight = tl.exp2(score - base[:, None])
    before = tl.exp2(peak - base)
    sums = sums * before[:, None] + tl.dot(weight.to(values.dtype), values, input_precision="ieee")
    return sums, new_peak, mass * before + tl.sum(weight, axis=1)


@triton.jit
def attend(
    q, k, v, key_rows, value_rows, indptr, indices, mask, mask_indptr, part_sums, part_peaks, part_masses,
    scale, nodes, size, q_row, k_row, v_row, key_slot, value_slot,
    HEADS: tl.constexpr, GROUP: tl.constexpr, BLOCKS: tl.constexpr, PARTS: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    request, part = tl.program_id(0).to(tl.int64), tl.program_id(2)
    kv_head = tl.program_id(1) // BLOCKS
    place = tl.program_id(1) % BLOCKS * M + tl.arange(0, M)  # of a node's head in the group, node by node
    node, head = place // GROUP, kv_head * GROUP + place % GROUP
    live = node < nodes
    lane, column = tl.arange(0, D), tl.arange(0, N)
    inside = lane < size
    first_node = request * nodes
    rows = (first_node + node) * q_row + head * size
    queries = tl.load(q + rows[:, None] + lane, mask=live[:, None] & inside, other=0.0)
    sums = tl.zeros([M, D], dtype=tl.float32)
    peak = tl.full([M], NOTHING, dtype=tl.float32)
    mass = tl.zeros([M], dtype=tl.float32)

    first_index = tl.load(indptr + request)
    prefix = tl.load(indptr + request + 1) - first_index
    share = tl.cdiv(tl.cdiv(prefix, PARTS - 1), N) * N  # of the prefix, for each part but the last
    end = tl.minimum(prefix, (part + 1) * share)
    in_prefix = part < PARTS - 1
    for first in range(part * share, tl.where(in_prefix, end, 0), N):
        there = first + column < end
        slot = tl.load(indices + first_index + first + column, mask=there, other=0).to(tl.int64)
        reads = there[:, None] & inside
        keys = tl.load(key_rows + (slot * key_slot + kv_head * size)[:, None] + lane, mask=reads, other=0.0)
        values = tl.load(value_rows + (slot * value_slot + kv_head * size)[:, None] + lane, mask=reads, other=0.0)
        seen = live[:, None] & there
        sums, peak, mass = fold(queries, tl.trans(keys), values, seen, scale, sums, peak, mass)

    sight = tl.load(mask_indptr + request) + node.to(tl.int64) * (prefix + nodes) + prefix
    for first in range(0, tl.where(in_prefix, 0, nodes), N):
        there = first + column < nodes
        other = first_node + first + column
        reads = there[:, None] & inside
        keys = tl.load(k + (other * k_row + kv_head * size)[:, None] + lane, mask=reads, other=0.0)
        values = tl.load(v + (other * v_row + kv_head * size)[:, None] + lane, mask=reads, other=0.0)
        asked = live[:, None] & there
        seen = asked & (tl.load(mask + sight[:, None] + first + column, mask=asked, other=0) != 0)
        sums, peak, mass = fold(queries, tl.trans(keys), values, seen, scale, sums, peak, mass)

    found = ((first_node + node) * HEADS + head) * PARTS + part
    met = live & (peak > NOTHING)
    tl.store(part_peaks + found, peak, mask=live)
    tl.store(part_masses + found, mass, mask=met)
    tl.store(part_sums + found[:, None] * size + lane, sums, mask=met[:, None] & inside)


@triton.jit
def join(part_sums, part_peaks, part_masses, out, size, PARTS: tl.constexpr, D: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)  # of a node's head
    part, lane = tl.arange(0, PARTS), tl.arange(0, D)
    inside = lane < size
    peaks = tl.load(part_peaks + row * PARTS + part)
    met = peaks > NOTHING
    highest = tl.max(peaks, axis=0)
    weight = tl.exp2(peaks - tl.where(highest == NOTHING, 0.0, highest))  # 0 for a part that met nothing
    mass = tl.sum(weight * tl.load(part_masses + row * PARTS + part, mask=met, other=0.0), axis=0)
    reads = met[:, None] & inside
    sums = tl.load(part_sums + (row * PARTS + part)[:, None] * size + lane, mask=reads, other=0.0)
    total = tl.sum(weight[:, None] * sums, axis=0)
    answer = total / tl.where(mass > 0, mass, 1.0)  # a graph's padding may see nothing; its rows are read by nobody
    tl.store(out + row * size + lane, answer.to(out.dtype.element_ty), mask=inside)
