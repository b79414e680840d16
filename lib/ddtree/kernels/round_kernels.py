# mypy: disallow-untyped-defs=False
"""Triton kernels of a served round: uniform samples, tree masks and KV compaction."""

import triton
import triton.language as tl

COINS_UNALIGNED = ("seeds", "prefix_len", "coins", "finals")


@triton.jit(do_not_specialize=("width",), do_not_specialize_on_alignment=COINS_UNALIGNED)
def draw_coins(seeds, prefix_len, coins, finals, width, GOLDEN: tl.constexpr, BITS: tl.constexpr, LANES: tl.constexpr):
    request = tl.program_id(0)
    seed = tl.load(seeds + request).to(tl.uint64, bitcast=True)
    prefix = tl.load(prefix_len + request).to(tl.uint64)
    golden = tl.full([LANES], GOLDEN, tl.uint64)
    lane = tl.arange(0, LANES)
    key = mixed(mixed(seed + golden) + prefix * golden)
    drawn = mixed(key + (lane + 1).to(tl.uint64) * golden) >> (64 - BITS)
    coin = (drawn.to(tl.int32).to(tl.float32) + 0.5) * (1.0 / (1 << BITS))
    tl.store(finals + request + lane, coin, mask=lane == 0)
    node = lane - 1
    tl.store(coins + request.to(tl.int64) * width + node, coin, mask=(node >= 0) & (node < width))


@triton.jit
def mixed(x):
    """SplitMix64's finaliser."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


PACKED_MASK_UNALIGNED = ("buffer", "visible", "prefix_len")


@triton.jit(do_not_specialize=("width",), do_not_specialize_on_alignment=PACKED_MASK_UNALIGNED)
def write_mask_row(buffer, visible, prefix_len, width, BATCH: tl.constexpr, WIDTH: tl.constexpr):
    request, node = tl.program_id(0), tl.program_id(1)
    other = tl.arange(0, BATCH)
    before = tl.load(prefix_len + other, mask=other < request, other=0)
    start = width * (tl.sum(before) + request.to(tl.int64) * width)
    prefix = tl.load(prefix_len + request)
    row = start + node * (prefix + width) + prefix
    seen = tl.arange(0, WIDTH)
    inside = seen < width
    cell = tl.load(visible + (request.to(tl.int64) * width + node) * width + seen, mask=inside)
    tl.store(buffer + row + seen, cell, mask=inside)


COMPACT_UNSPECIALISED = ("words", "q", "length")
COMPACT_UNALIGNED = ("pointers", "slots", "path")


@triton.jit(do_not_specialize=COMPACT_UNSPECIALISED, do_not_specialize_on_alignment=COMPACT_UNALIGNED)
def move_path(pointers, slots, path, words, q, length, TILE: tl.constexpr):
    buffer = tl.load(pointers + tl.program_id(0)).to(tl.pointer_type(tl.int64))
    slots += tl.program_id(1).to(tl.int64) * q
    path += tl.program_id(1).to(tl.int64) * length
    for first in range(0, words, TILE):
        word = first + tl.arange(0, TILE)
        inside = word < words
        for k in range(1, length):
            node = tl.load(path + k)
            if node > k:
                source = tl.load(slots + node) * words
                target = tl.load(slots + k) * words
                row = tl.load(buffer + source + word, mask=inside)
                tl.store(buffer + target + word, row, mask=inside)
                tl.debug_barrier()  # a later row may come to where this one was
