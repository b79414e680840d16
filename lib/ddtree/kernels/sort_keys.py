# mypy: disallow-untyped-defs=False
"""Order-preserving int64 keys: larger numbers first, ties by lower index; and logits divided by a temperature."""

import triton
import triton.language as tl

SIGN = tl.constexpr(0x7FFFFFFF)  # all bits of an int32 except its sign
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
    """A key and its place (0 to 2^31 - 1) as one int64: the larger one comes first."""
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


LOG2_E = tl.constexpr(1.4426950408889634)
EXP_UNDERFLOW = tl.constexpr(104.0)  # exp(-104) is 0 in float32: a token this far below the largest has no probability


@triton.jit
def scaled(x, temperature, inverse):
    """x / temperature rounded as float32 division rounds it, for three multiplications; -0 becomes 0."""
    x = x.to(tl.float32)
    quotient = x * inverse
    rest = tl.fma(-quotient, temperature, x)
    corrected = tl.fma(rest, inverse, quotient)
    infinite = (quotient == float("inf")) | (quotient == float("-inf"))
    return tl.where(infinite, quotient, corrected) + 0.0
