# mypy: disallow-untyped-defs=False
"""One order of a row's tokens, the larger scaled logit first and of equal ones the lower id, as one int64 a token."""

import triton
import triton.language as tl

SIGN = tl.constexpr(0x7FFFFFFF)
LEAST = tl.constexpr(-0x7FFFFFFFFFFFFFFF)  # below every packed token
FADES = tl.constexpr(104.0)  # exp(-104) is 0 in float32: a token this far below the largest has no probability


@triton.jit
def scaled(x, temperature, inverse):
    """x / temperature rounded as float32 division rounds it, for three multiplications; -0 becomes 0."""
    x = x.to(tl.float32)
    quotient = x * inverse
    rest = tl.fma(-quotient, temperature, x)
    corrected = tl.fma(rest, inverse, quotient)
    infinite = (quotient == float("inf")) | (quotient == float("-inf"))
    return tl.where(infinite, quotient, corrected) + 0.0


@triton.jit
def key_of(z):
    """int32 that orders as the float32 z does."""
    bits = z.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & SIGN)


@triton.jit
def float_of(key):
    """The float32 whose key this is."""
    bits = key ^ ((key >> 31) & SIGN)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def packed(key, token):
    """Token and key as one int64; a larger one stands earlier."""
    return (key.to(tl.int64) << 32) + (token ^ SIGN).to(tl.int64)


@triton.jit
def token_of(packed_token):
    return (packed_token & SIGN).to(tl.int32) ^ SIGN


@triton.jit
def first_of(key):
    """Below every token of this key and above every token of a smaller one."""
    return key.to(tl.int64) << 32
