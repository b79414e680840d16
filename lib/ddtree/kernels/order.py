# mypy: disallow-untyped-defs=False
"""Numbers in one order, the larger first and of equal ones the lower place, as one int64 each."""

import triton
import triton.language as tl

SIGN = tl.constexpr(0x7FFFFFFF)  # the bits of an int32 but its sign
LEAST = tl.constexpr(-0x7FFFFFFFFFFFFFFF)  # below every packed number


@triton.jit
def key_of(value):
    """int32 that orders as the float32 does. -0 must not come in."""
    bits = value.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & SIGN)


@triton.jit
def float_of(key):
    """The float32 whose key this is."""
    bits = key ^ ((key >> 31) & SIGN)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def packed(key, place):
    """A key and its place (0 to 2^31 - 1) as one int64: the larger one stands earlier."""
    return (key.to(tl.int64) << 32) + (place ^ SIGN).to(tl.int64)


@triton.jit
def value_of(one):
    """The float32 whose key was packed."""
    return float_of((one >> 32).to(tl.int32))


@triton.jit
def place_of(one):
    """The place that was packed; beyond every place for LEAST."""
    return (one & SIGN).to(tl.int32) ^ SIGN


@triton.jit
def first_of(key):
    """Below every place of this key and above every place of a smaller one."""
    return key.to(tl.int64) << 32
