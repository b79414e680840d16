"""Find the top-k tokens of each drafted position: the only part of the tree builder that reads the vocabulary.

Equal logits are ordered by id, so a smaller k gives a prefix of a larger k's tokens.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ddtree import kernels

FLOAT32 = torch.finfo(torch.float32)
BELOW_SIGN = 2**31 - 1  # all bits of an int32 except its sign
MIN_CHUNK_BITS, MAX_CHUNK_BITS = 4, 8  # log2 of the chunk length in _topk_by_id


def topk_tokens(logits: Tensor, branch: int, temperature: float | Tensor) -> tuple[Tensor, Tensor]:
    """The `branch` most probable tokens of each position, best first, ties by lower id, and their log-probabilities.

    From logits [bs, depth, V] of any float type to int64 and float32 [bs, depth, branch]. `temperature` is a number, or
    a tensor [bs] with one for each row. Raises ValueError for a temperature that float32 logits cannot be divided by.
    """
    if not _can_divide(temperature):
        raise ValueError(f"draft_temperature is {temperature}; it divides logits, so it must be above 0.")
    if branch == 0 or logits.shape[1] == 0:
        none = torch.zeros(*logits.shape[:2], branch, device=logits.device)
        return none.long(), none
    if isinstance(temperature, Tensor):
        temperature = temperature.to(logits.device, torch.float32).reshape(-1).expand(len(logits)).contiguous()
    else:
        temperature = float(temperature)
    fits = kernels.fits_topk(logits.shape[2], branch)
    topk = kernels.choose(logits, gpu=kernels.topk_tokens, torch=_topk_tokens, fits=fits)
    return topk(logits, branch, temperature)


def _topk_tokens(logits: Tensor, branch: int, temperature: float | Tensor) -> tuple[Tensor, Tensor]:
    if isinstance(temperature, Tensor):
        logits = logits / temperature[:, None, None]  # float32 whatever the logits are
    elif temperature != 1.0:
        logits = logits.float() / temperature
    logprobs, tokens = _topk_by_id(logits.log_softmax(dim=-1, dtype=torch.float32), branch)
    return tokens, torch.where(logprobs.isnan(), -torch.inf, logprobs)  # a row of NaN drafts nothing


def _can_divide(temperature: float | Tensor) -> bool:
    """Whether float32 logits can be divided by it; a tensor on a GPU is not read, since that would wait."""
    if isinstance(temperature, Tensor):
        return temperature.is_cuda or bool(((temperature > 0) & temperature.isfinite()).all())
    return FLOAT32.tiny <= temperature <= FLOAT32.max


def _topk_by_id(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest float32 along the last axis, equal values by ascending id, so that a smaller k gives a prefix.

    `torch.topk` does not specify which of several equal values it returns, so value and id are packed into one integer.
    Few elements need packing: the k best lie in the k chunks of the axis with the largest maxima (ties: earlier chunk).
    """
    n = values.shape[-1]
    chunk = _chunk_length(n, k)
    if n <= k * chunk:
        return _largest(values, torch.arange(n, device=values.device), k)
    if n % chunk:
        values = torch.nn.functional.pad(values, (0, chunk - n % chunk), value=-torch.inf)
    chunks = values.unflatten(-1, (-1, chunk))
    maxima = chunks.amax(dim=-1)
    best = _largest(maxima, torch.arange(maxima.shape[-1], device=values.device), k)[1]
    kept = chunks.gather(-2, best[..., None].expand(*best.shape, chunk))
    ids = best[..., None] * chunk + torch.arange(chunk, device=values.device)
    return _largest(kept.flatten(-2), ids.flatten(-2), k)


def _largest(values: Tensor, ids: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of `values` (float32) and their `ids`, all different and below 2^31; equal values by id."""
    bits = (values + 0.0).contiguous().view(torch.int32)  # -0 becomes 0
    ordered = bits ^ ((bits >> 31) & BELOW_SIGN)  # an integer that compares as the float does
    best = ((ordered.long() << 32) + (BELOW_SIGN - ids)).topk(k, dim=-1).values
    bits = (best >> 32).int()
    return (bits ^ ((bits >> 31) & BELOW_SIGN)).view(torch.float32), BELOW_SIGN - (best & BELOW_SIGN)


def _chunk_length(n: int, k: int) -> int:
    """The power of two that about minimises the elements to sort: n / chunk maxima, then k chunks."""
    return 2 ** min(max(round(math.log2(n / k) / 2), MIN_CHUNK_BITS), MAX_CHUNK_BITS)
