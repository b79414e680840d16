"""Intervals for what was measured: resampling whole prompts, since rounds of one prompt are not independent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


def resampled_prompts(prompts: int, resamples: int, seed: int) -> np.ndarray:
    """Bootstrap weights [resamples, prompts]: how often each prompt is drawn. Use one set for paired comparisons."""
    stream = np.random.default_rng(seed)
    return stream.multinomial(prompts, np.full(prompts, 1 / prompts), size=resamples)


def ratio_of_sums(numerators: ArrayLike, denominators: ArrayLike, weights: np.ndarray) -> Estimate:
    """Sum over prompts of one quantity per sum of another (tokens per second, tokens per round), percentile interval.

    Both are [prompts]; with one prompt the interval is the value itself.
    """
    return _estimate(_ratio(numerators, denominators, weights), np.sum(numerators) / np.sum(denominators))


def ratio_of_ratios(
    numerators: ArrayLike,
    denominators: ArrayLike,
    base_numerators: ArrayLike,
    base_denominators: ArrayLike,
    weights: np.ndarray,
) -> Estimate:
    """A speed-up: one ratio of sums over another, both resampled with the same prompts."""
    value = np.sum(numerators) / np.sum(denominators) / (np.sum(base_numerators) / np.sum(base_denominators))
    draws = _ratio(numerators, denominators, weights) / _ratio(base_numerators, base_denominators, weights)
    return _estimate(draws, value)


def _ratio(numerators: ArrayLike, denominators: ArrayLike, weights: np.ndarray) -> np.ndarray:
    return (weights @ np.asarray(numerators, dtype=float)) / (weights @ np.asarray(denominators, dtype=float))


def _estimate(draws: np.ndarray, value: float) -> Estimate:
    low, high = np.percentile(draws, [2.5, 97.5])
    return Estimate(float(value), float(low), float(high))
