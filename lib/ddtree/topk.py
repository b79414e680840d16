"""The likeliest tokens of each drafted position: the part of the tree builder that reads the vocabulary.

Invariant: equal logits go to the lower id, so a smaller cap gives a prefix of a larger one's tokens.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ddtree import kernels

FLOAT32 = torch.finfo(torch.float32)
BELOW_SIGN = 2**31 - 1  # all bits of an int32 but its sign
MIN_CHUNK_BITS, MAX_CHUNK_BITS = 4, 8  # of the pieces a vocabulary is cut into; see _top_k_by_id


def likeliest_tokens(logits: Tensor, branch: int, temperature: float | Tensor) -> tuple[Tensor, Tensor]:
    """The likeliest `branch` tokens of each position, best first, ties to the lower id, and their log-probabilities.

    From logits [bs, depth, V] to int64 and float32 [bs, depth, branch]: the part of `build_tree` that reads the
    vocabulary. Raises ValueError for a temperature out of range.
    """
    if not _divides(temperature):
        raise ValueError(f"draft_temperature is {temperature}; it divides logits, so it must be above 0.")
    if branch == 0 or logits.shape[1] == 0:
        none = torch.zeros(*logits.shape[:2], branch, device=logits.device)
        return none.long(), none
    if kernels.run_on(logits) and kernels.fits(logits.shape[2], branch):
        if isinstance(temperature, Tensor):
            each = temperature.to(logits.device, torch.float32).reshape(-1).expand(len(logits)).contiguous()
            return kernels.likeliest(logits, branch, each)
        return kernels.likeliest(logits, branch, float(temperature))
    if isinstance(temperature, Tensor):
        # float32 whatever the logits are
        logits = logits / temperature.to(logits.device, torch.float32).reshape(-1, 1, 1)
    elif temperature != 1.0:
        logits = logits.float() / temperature
    logps, tokens = _top_k_by_id(logits.log_softmax(dim=-1, dtype=torch.float32), branch)
    return tokens, torch.where(logps.isnan(), -torch.inf, logps)  # a position without a distribution drafts nothing


def _divides(temperature: float | Tensor) -> bool:
    """Whether float32 logits can be divided by it; a tensor on a GPU is not looked at, since that would wait."""
    if isinstance(temperature, Tensor):
        return temperature.is_cuda or bool(((temperature > 0) & temperature.isfinite()).all())
    return FLOAT32.tiny <= temperature <= FLOAT32.max


def _top_k_by_id(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest float32 along the last axis, equal values by ascending id, so that a smaller k gives a prefix.

    `torch.topk` leaves open which of several equal values make the cut, so each value is put into one integer with its
    id. Only few are: cut the axis into chunks, and the k best elements lie in the k chunks of largest maximum (ties to
    the earlier chunk).
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
    """The power of two that leaves about as few elements to sort as can be: n / chunk maxima, then k chunks."""
    return 2 ** min(max(round(math.log2(n / k) / 2), MIN_CHUNK_BITS), MAX_CHUNK_BITS)
