# mypy: disallow-untyped-defs=False
"""Numbers in one order, the larger first and of equal ones the lower place, as one int64 each; temperatures."""

import triton
import triton.language as tl

LOW = tl.constexpr(0x7FFFFFFF)  # the bits of an int32 but its sign
LOG2_E = tl.constexpr(1.4426950408889634)
LEAST = tl.constexpr(-0x7FFFFFFFFFFFFFFF)  # below every packed number


@triton.jit
def scaled(x, temperature):
    """x / temperature, rounded as a float32 division is on a CPU."""
    return tl.div_rn(x, temperature)


@triton.jit
def packed(value, place):
    """A float32 and its place (0 to 2^31 - 1) as one int64: the larger one stands earlier. -0 must not come in."""
    bits = value.to(tl.int32, bitcast=True)
    key = bits ^ ((bits >> 31) & LOW)
    return (key.to(tl.int64) << 32) + (place ^ LOW).to(tl.int64)


@triton.jit
def value_of(one):
    """The float32 that was packed."""
    key = (one >> 32).to(tl.int32)
    return (key ^ ((key >> 31) & LOW)).to(tl.float32, bitcast=True)


@triton.jit
def place_of(one):
    """The place that was packed; beyond every place for LEAST."""
    return (one & LOW).to(tl.int32) ^ LOW
