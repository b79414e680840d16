"""Medians of repeated timings, and ratios of two, with 95 % bootstrap intervals over the turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ddtree.workbook.stats import Estimate

RESAMPLES = 1000


def median(values: Sequence[float], *, seed: int = 0) -> Estimate:
    """The median of one case's turns."""
    samples = np.asarray(values, dtype=float)
    draws = np.median(samples[_turns(len(samples), seed)], axis=1)
    return _estimate(float(np.median(samples)), draws)


def ratio(numerators: Sequence[float], denominators: Sequence[float], *, seed: int = 0) -> Estimate:
    """One median over another; both cases were timed in the same turns, which are drawn together."""
    over, under = np.asarray(numerators, dtype=float), np.asarray(denominators, dtype=float)
    if over.shape != under.shape:
        raise ValueError(f"{len(over)} and {len(under)} turns were timed; a ratio needs the same turns of both.")
    turns = _turns(len(over), seed)
    draws = np.median(over[turns], axis=1) / np.median(under[turns], axis=1)
    return _estimate(float(np.median(over) / np.median(under)), draws)


def columns(name: str, estimate: Estimate) -> dict[str, Any]:
    """NAME, NAME_lo and NAME_hi: how a record holds an estimate."""
    return {name: estimate.value, f"{name}_lo": estimate.low, f"{name}_hi": estimate.high}


def _turns(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, count, size=(RESAMPLES, count))


def _estimate(value: float, draws: np.ndarray) -> Estimate:
    low, high = np.percentile(draws, [2.5, 97.5])
    return Estimate(value, min(float(low), value), max(float(high), value))
