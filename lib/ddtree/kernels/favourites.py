# mypy: disallow-untyped-defs=False
"""A position's likeliest tokens: every chunk's largest logit in one pass, then the few chunks that can hold them."""

import triton
import triton.language as tl

from ddtree.kernels.order import LEAST, packed, place_of, scaled, value_of


@triton.jit
def survey(
    logits,
    row_stride,
    temperatures,
    depth,
    maxima,
    peaks,
    masses,
    vocab,
    chunks,
    parts,
    CHUNK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """One part (ROWS chunks) of one row: the chunks' largest logits, the part's largest scaled one, and its mass.

    The mass is the sum of exp(z - largest z), NaN where the part holds NaN or +inf.
    """
    row, part = tl.program_id(0), tl.program_id(1)
    temperature = tl.load(temperatures + row // depth)
    chunk = part * ROWS + tl.arange(0, ROWS)
    tokens = chunk[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    first = logits + row.to(tl.int64) * row_stride
    x = tl.load(first + tokens, mask=tokens < vocab, other=float("-inf")).to(tl.float32)
    spoiled = tl.max(tl.max(((x != x) | (x == float("inf"))).to(tl.int32), axis=1), axis=0)
    largest = tl.max(x, axis=1)
    tl.store(maxima + row * chunks + chunk, largest, mask=chunk < chunks)
    z = scaled(x, temperature)
    peak = scaled(tl.max(largest, axis=0), temperature)
    below = tl.where(peak == float("-inf"), 0.0, peak)
    mass = tl.sum(tl.sum(tl.exp(z - below), axis=1), axis=0)
    tl.store(peaks + row * parts + part, peak)
    tl.store(masses + row * parts + part, tl.where(spoiled > 0, float("nan"), mass))


@triton.jit
def favourites(
    logits,
    row_stride,
    temperatures,
    depth,
    maxima,
    peaks,
    masses,
    tokens_out,
    logps_out,
    vocab,
    chunks,
    parts,
    branch,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    PARTS: tl.constexpr,
    BRANCH: tl.constexpr,
):
    """One row's `branch` likeliest tokens, best first and ties to the lower id, and their log-probabilities."""
    row = tl.program_id(0)
    temperature = tl.load(temperatures + row // depth)
    part = tl.arange(0, PARTS)
    peak = tl.load(peaks + row * parts + part, mask=part < parts, other=float("-inf"))
    mass = tl.load(masses + row * parts + part, mask=part < parts, other=0.0)
    top = tl.max(peak, axis=0)
    total = tl.sum(mass * tl.exp(peak - tl.where(top == float("-inf"), 0.0, top)), axis=0)

    chunk = tl.arange(0, CHUNKS)
    largest = tl.load(maxima + row * chunks + chunk, mask=chunk < chunks, other=float("-inf")) + 0.0
    ordered = tl.where(chunk < chunks, packed(largest, chunk), LEAST)
    best = place_of(tl.topk(ordered, BRANCH))  # the best tokens lie in the chunks of largest maxima
    tokens = best[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    inside = (tokens < vocab) & (best[:, None] < chunks)
    first = logits + row.to(tl.int64) * row_stride
    x = tl.load(first + tokens, mask=inside, other=float("-inf")).to(tl.float32) + 0.0
    candidates = tl.where(inside, packed(x, tokens), LEAST)
    chosen = tl.topk(tl.reshape(candidates, [BRANCH * CHUNK]), BRANCH)

    z = scaled(value_of(chosen), temperature)
    logp = (z - top) - tl.log(total)
    logp = tl.where(logp != logp, float("-inf"), logp)  # a position without a distribution drafts nothing
    rank = tl.arange(0, BRANCH)
    tl.store(tokens_out + row * branch + rank, place_of(chosen).to(tl.int64), mask=rank < branch)
    tl.store(logps_out + row * branch + rank, logp, mask=rank < branch)
