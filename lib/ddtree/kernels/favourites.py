# mypy: disallow-untyped-defs=False
"""A position's likeliest tokens: every chunk's largest logit in one pass, then the few chunks that can hold them."""

import triton
import triton.language as tl

from ddtree.kernels.order import LEAST, key_of, packed, place_of, value_of
from ddtree.kernels.scaling import LOG2_E

# Where these lie in memory Triton need not know, so that one compilation serves every call of a shape.
SMALL = ("temperatures", "work", "tokens_out", "logps_out")


@triton.jit
def _temperature_of(row, temperatures, depth, EACH: tl.constexpr):
    """`temperatures` is one number, or where EACH a pointer to one for each request."""
    if EACH:
        return tl.load(temperatures + row // depth)
    else:
        return temperatures + 0.0


@triton.jit(do_not_specialize_on_alignment=SMALL)
def survey(
    logits,
    row_stride,
    temperatures,
    depth,
    work,  # [rows, chunks] of maxima, [rows, parts] of peaks, [rows, parts] of masses
    vocab,
    chunks,
    parts,
    EACH: tl.constexpr,
    CHUNK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """One part (ROWS chunks) of one row: the chunks' largest logits, the part's largest scaled one, and its mass.

    The mass is the sum of exp(z - largest z), NaN where the part holds NaN or +inf.
    """
    row, part, rows = tl.program_id(0), tl.program_id(1), tl.num_programs(0)
    maxima, peaks = work, work + rows * chunks
    masses = peaks + rows * parts
    temperature = _temperature_of(row, temperatures, depth, EACH)
    chunk = part * ROWS + tl.arange(0, ROWS)
    tokens = chunk[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    first = logits + row.to(tl.int64) * row_stride
    x = tl.load(first + tokens, mask=tokens < vocab, other=float("-inf")).to(tl.float32)
    largest = tl.max(x, axis=1)  # passes over NaN
    tl.store(maxima + row * chunks + chunk, largest, mask=chunk < chunks)
    peak = tl.max(largest, axis=0)
    below = tl.where(peak == float("-inf"), 0.0, peak)
    slope = tl.div_rn(tl.full([], LOG2_E, tl.float32), temperature)  # no division for each logit
    mass = tl.sum(tl.sum(tl.exp2((x - below) * slope), axis=1), axis=0)  # NaN of NaN, and of +inf - +inf
    tl.store(peaks + row * parts + part, tl.div_rn(peak, temperature))
    tl.store(masses + row * parts + part, mass)


@triton.jit(do_not_specialize_on_alignment=SMALL)
def favourites(
    logits,
    row_stride,
    temperatures,
    depth,
    work,  # as `survey` left it
    tokens_out,
    logps_out,
    vocab,
    chunks,
    parts,
    branch,
    EACH: tl.constexpr,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    PARTS: tl.constexpr,
    BRANCH: tl.constexpr,
):
    """One row's `branch` likeliest tokens, best first and ties to the lower id, and their log-probabilities."""
    row, rows = tl.program_id(0), tl.num_programs(0)
    maxima, peaks = work, work + rows * chunks
    masses = peaks + rows * parts
    temperature = _temperature_of(row, temperatures, depth, EACH)
    part = tl.arange(0, PARTS)
    peak = tl.load(peaks + row * parts + part, mask=part < parts, other=float("-inf"))
    mass = tl.load(masses + row * parts + part, mask=part < parts, other=0.0)
    top = tl.max(peak, axis=0)
    total = tl.sum(mass * tl.exp(peak - tl.where(top == float("-inf"), 0.0, top)), axis=0)

    chunk = tl.arange(0, CHUNKS)
    largest = tl.load(maxima + row * chunks + chunk, mask=chunk < chunks, other=float("-inf")) + 0.0
    ordered = tl.where(chunk < chunks, packed(key_of(largest), chunk), LEAST)
    best = place_of(tl.topk(ordered, BRANCH))  # the best tokens lie in the chunks of largest maxima
    tokens = best[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    inside = (tokens < vocab) & (best[:, None] < chunks)
    first = logits + row.to(tl.int64) * row_stride
    x = tl.load(first + tokens, mask=inside, other=float("-inf")).to(tl.float32) + 0.0
    candidates = tl.where(inside, packed(key_of(x), tokens), LEAST)
    chosen = tl.topk(tl.reshape(candidates, [BRANCH * CHUNK]), BRANCH)

    z = tl.div_rn(value_of(chosen), temperature)
    logp = (z - top) - tl.log(total)
    logp = tl.where(logp != logp, float("-inf"), logp)  # a position without a distribution drafts nothing
    rank = tl.arange(0, BRANCH)
    tl.store(tokens_out + row * branch + rank, place_of(chosen).to(tl.int64), mask=rank < branch)
    tl.store(logps_out + row * branch + rank, logp, mask=rank < branch)
