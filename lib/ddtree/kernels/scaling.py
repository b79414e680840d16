# mypy: disallow-untyped-defs=False
"""Logits under a temperature: divided as a CPU divides them, and how far below the largest one a token still counts."""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
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
