"""Sampling parameters, the target's probabilities under them, and the coins: everything random a round uses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

GREEDY_BELOW = 1e-5  # a temperature under this is greedy: the row is one-hot
COIN_BITS = 23  # odd multiples of 2^-24 are exact in float32 and never 0 or 1
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64's increment


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one request samples; filters apply in the order temperature, top-k, top-p, min-p.

    Raises ValueError naming the field, the value found and the range.
    """

    temperature: float = 1.0  # below 1e-5 is greedy
    top_k: int = 0  # tokens kept; 0 keeps all
    top_p: float = 1.0  # keep a token while the mass before it is below this
    min_p: float = 0.0  # keep tokens of at least this share of the likeliest one's probability

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature is {self.temperature}; it must be a finite number of 0 or more.")
        if isinstance(self.top_k, bool) or int(self.top_k) != self.top_k or self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}; it must be a whole number of 0 (off) or more.")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; it must be above 0 and at most 1 (off).")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p is {self.min_p}; it must be between 0 (off) and 1.")

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW


class NonFiniteLogitsError(ValueError):
    """A row of logits holds NaN or +inf, or nothing above -inf, so it is not a distribution."""

    @classmethod
    def at(cls, request: int, node: int) -> NonFiniteLogitsError:
        return cls(
            f"logits of request {request}, node {node} are not finite (NaN, +inf, or nothing above -inf), so there "
            "is no distribution to sample from."
        )


def target_probs(
    logits: Tensor,
    *,
    temperature: float | Sequence[float] | Tensor,
    top_k: int | Sequence[int] | Tensor = 0,
    top_p: float | Sequence[float] | Tensor = 1.0,
    min_p: float | Sequence[float] | Tensor = 0.0,
) -> Tensor:
    """The distribution that accepts each node's children, float32, of the shape of `logits` [..., V].

    Each parameter is a number or one value per request, repeated over that request's rows. Order:
    temperature, top-k (exactly k kept, ties to the lower id), top-p on the renormalised rest (a token stays
    while the mass before it is below top_p), min-p (relative to the row's largest), renormalise. A temperature
    below 1e-5 is greedy: one-hot at the first largest logit. Everything is computed in float32.

    Raises:
        NonFiniteLogitsError: names request and node of a row with NaN, +inf or nothing above -inf.
        ValueError: a parameter out of range, or not one value per request.
    """
    vocab = logits.shape[-1]
    rows = logits.reshape(math.prod(logits.shape[:-1]), vocab).float()
    if not len(rows):
        return rows.reshape(logits.shape)
    temps = _per_request("temperature", temperature, len(rows))
    ks = _per_request("top_k", top_k, len(rows))
    ps = _per_request("top_p", top_p, len(rows))
    floors = _per_request("min_p", min_p, len(rows))
    for values in zip(*_broadcast(temps, ks, ps, floors), strict=True):
        SamplingParams(*values)  # checks the ranges
    _refuse_non_finite(rows, logits.shape)

    greedy = [temp < GREEDY_BELOW for temp in temps]
    scaled = rows / _column([1.0 if one_hot else temp for temp, one_hot in zip(temps, greedy, strict=True)], rows)
    if any(k > 0 for k in ks):
        scaled = scaled.masked_fill(~_top_k_kept(scaled, _column(ks, rows)), -torch.inf)
    probs = scaled.softmax(dim=-1)
    if any(p < 1 for p in ps):
        probs = _renormalised(probs * _top_p_kept(probs, _column(ps, rows)))
    if any(floor > 0 for floor in floors):
        probs = _renormalised(probs * (probs >= _column(floors, rows) * probs.amax(dim=-1, keepdim=True)))
    if any(greedy):
        one_hot = torch.zeros_like(probs).scatter_(1, rows.argmax(dim=-1, keepdim=True), 1.0)
        probs = torch.where(_column(greedy, rows) > 0, one_hot, probs)
    return probs.reshape(logits.shape)


def _per_request(name: str, value: float | Sequence[float] | Tensor, rows: int) -> list[float]:
    """The values on the host, so that asking which filters are on waits for nothing."""
    values = value.flatten().tolist() if isinstance(value, Tensor) else np.ravel(value).tolist()
    if len(values) != 1 and (not values or rows % len(values)):
        raise ValueError(
            f"{name} has {len(values)} values for {rows} rows of logits; give one number, or one value per request."
        )
    return values


def _broadcast(*parameters: list[float]) -> list[list[float]]:
    requests = max(len(values) for values in parameters)
    for values in parameters:
        if len(values) not in (1, requests):
            raise ValueError(f"the parameters are for {len(values)} and for {requests} requests; they must agree.")
    return [values * requests if len(values) == 1 else values for values in parameters]


def _column(values: Sequence[float], rows: Tensor) -> Tensor:
    """float32 [rows, 1], each request's value repeated over its rows; [1, 1] for one value."""
    column = torch.tensor(values, dtype=torch.float32, device=rows.device)[:, None]
    return column if len(values) == 1 else column.repeat_interleave(len(rows) // len(values), dim=0)


def _refuse_non_finite(rows: Tensor, shape: torch.Size) -> None:
    # A row's largest logit is NaN if any is, +inf if any is, and -inf if all are.
    finite = rows.amax(dim=-1).isfinite() if len(rows) else torch.ones(0, dtype=torch.bool)
    if not bool(finite.all()):
        row = int((~finite).nonzero()[0])
        nodes = shape[-2] if len(shape) > 2 else 1
        raise NonFiniteLogitsError.at(row // nodes, row % nodes)


def _top_k_kept(scores: Tensor, ks: Tensor) -> Tensor:
    """Exactly k a row, ties at rank k to the lower id; k = 0 keeps all."""
    vocab = scores.shape[-1]
    k = torch.where(ks > 0, ks, vocab).clamp(max=vocab).long().expand(len(scores), 1)
    largest = scores.topk(int(k[ks.expand_as(k) > 0].max()), dim=-1).values
    threshold = largest.gather(1, (k - 1).clamp(max=largest.shape[1] - 1))
    above = scores > threshold
    tied = scores == threshold
    room = k - above.sum(dim=-1, keepdim=True)
    return above | (tied & (tied.cumsum(dim=-1) <= room)) | (ks <= 0)


def _top_p_kept(probs: Tensor, ps: Tensor) -> Tensor:
    ordered, ids = probs.sort(dim=-1, descending=True, stable=True)
    mass_before = ordered.double().cumsum(dim=-1) - ordered.double()
    kept = mass_before < ps.double()
    kept[:, 0] = True
    return torch.zeros_like(kept).scatter_(1, ids, kept) | (ps >= 1)


def _renormalised(probs: Tensor) -> Tensor:
    return probs / probs.sum(dim=-1, keepdim=True)


def step_coins(
    seeds: Sequence[int], prefix_len: Sequence[int], width: int, device: torch.device | str = "cpu"
) -> tuple[Tensor, Tensor]:
    """The coins of a round, all in (0, 1): float32 [bs, width] for the nodes, and float32 [bs] for the final draw.

    A counter-based stream: SplitMix64's finalizer (Steele, Lea and Flood, 2014) mixes a request's seed, its prefix
    length (tokens with KV before the round) and the node. A prefix only grows, so no two rounds of a request share a
    coin; no neighbour, batch position or tree width can shift one. Seeds count modulo 2^64. A server draws the same
    coins in a kernel (`ddtree.kernels.round_ops.coins_on_device`), so a served text can be replayed from its seed.

    Raises ValueError where seeds and prefix lengths are not of as many requests.
    """
    if len(seeds) != len(prefix_len):
        raise ValueError(f"seeds has {len(seeds)} values and prefix_len {len(prefix_len)}; each has one a request.")
    lanes = np.arange(1, width + 2, dtype=np.uint64)  # the first is the final draw's
    requests = np.array([seed % 2**64 for seed in seeds], dtype=np.uint64)
    rounds = _mixed(_mixed(requests + GOLDEN) + np.asarray(prefix_len, dtype=np.uint64) * GOLDEN)
    bits = _mixed(rounds[:, None] + lanes * GOLDEN) >> np.uint64(64 - COIN_BITS)
    drawn = ((bits + 0.5) * 2.0**-COIN_BITS).astype(np.float32)
    coins = torch.from_numpy(drawn).to(device, non_blocking=True)  # one copy, which a GPU makes while the host goes on
    return coins[:, 1:].contiguous(), coins[:, 0].contiguous()


def _mixed(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
