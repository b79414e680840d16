# mypy: disallow-untyped-defs=False
"""The kernel of `coins_on_device`: one program draws a request's coins of a round, in unsigned 64-bit arithmetic."""

import triton
import triton.language as tl

SMALL = ("seeds", "prefix_len", "coins", "finals")


@triton.jit(do_not_specialize=("width",), do_not_specialize_on_alignment=SMALL)
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
