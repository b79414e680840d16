"""Compute 95 % bootstrap intervals: ratios of sums over prompts, medians over turns, always paired and seeded.

Rounds of one prompt are not independent, so whole prompts are resampled. Every drawn array is [1 + resamples]: first
the value over all prompts or turns, then its resamples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ddtree.decode import STAGES

RESAMPLES = 1000  # of the turns of a median
STAGE_COLUMNS = [f"{stage}_ms" for stage in STAGES]
POINT = ["slice", "temperature", "label", "strategy", "budget"]
Drawn = dict[str, np.ndarray]  # column to [1 + resamples]
Bootstrap = tuple[int, int]  # resamples and seed


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


def estimate(drawn: np.ndarray) -> Estimate:
    """Value and percentile interval of [1 + resamples]; with one prompt the interval is the value itself."""
    low, high = np.percentile(drawn[1:], [2.5, 97.5])
    return Estimate(float(drawn[0]), float(low), float(high))


def columns(name: str, found: Estimate) -> dict[str, float]:
    """An estimate as three columns of a frame: NAME, NAME_lo, NAME_hi."""
    return {name: found.value, f"{name}_lo": found.low, f"{name}_hi": found.high}


def estimates(**drawn: np.ndarray) -> dict[str, float]:
    """The `columns` of several drawn arrays, each under its keyword."""
    return {key: value for name, own in drawn.items() for key, value in columns(name, estimate(own)).items()}


def resampled_prompts(prompts: int, resamples: int, seed: int) -> np.ndarray:
    """Bootstrap weights [resamples, prompts]: how often each prompt is drawn. Use one set for paired comparisons."""
    stream = np.random.default_rng(seed)
    return stream.multinomial(prompts, np.full(prompts, 1 / prompts), size=resamples)


def ratio_of_sums(numerators: ArrayLike, denominators: ArrayLike, weights: np.ndarray) -> Estimate:
    """Sum over prompts of one quantity per sum of another (tokens per second, tokens per round); both are [prompts]."""
    return estimate(_ratio(numerators, denominators, weights))


def ratio_of_ratios(
    numerators: ArrayLike,
    denominators: ArrayLike,
    base_numerators: ArrayLike,
    base_denominators: ArrayLike,
    weights: np.ndarray,
) -> Estimate:
    """A speed-up: one ratio of sums over another, both resampled with the same prompts."""
    base = _ratio(base_numerators, base_denominators, weights)
    return estimate(_ratio(numerators, denominators, weights) / base)


def median(values: Sequence[float], *, seed: int = 0) -> Estimate:
    """The median of one case's turns."""
    return _with_value(_medians(values, seed))


def ratio(numerators: Sequence[float], denominators: Sequence[float], *, seed: int = 0) -> Estimate:
    """One median over another; both cases were timed in the same turns, which are drawn together.

    Raises ValueError if the numbers of turns differ.
    """
    if len(numerators) != len(denominators):
        raise ValueError(
            f"{len(numerators)} and {len(denominators)} turns were timed; a ratio needs the same turns of both."
        )
    return _with_value(_medians(numerators, seed) / _medians(denominators, seed))


def prompt_sums(rounds: pd.DataFrame) -> pd.DataFrame:
    """Sums of a sweep's rounds by POINT and prompt; cells of one point are pooled as repeats.

    Columns: rounds, tokens, ms and each stage's ms of the decoder; base_tokens and base_ms of the autoregressive
    rounds of the same cells, temperature and prompt; cells.
    """
    known = rounds.assign(rounds=1, ms=rounds[STAGE_COLUMNS].sum(axis=1), tokens=rounds["emitted"])
    place = ["cell", "temperature", "prompt"]
    by_cell = known.groupby([*POINT, "cell", "prompt"])[["rounds", "tokens", "ms", *STAGE_COLUMNS]].sum().reset_index()
    plain = by_cell[by_cell["strategy"] == "autoregressive"].set_index(place)[["tokens", "ms"]].add_prefix("base_")
    joined = by_cell.join(plain, on=place).assign(cells=1)
    return joined.groupby([*POINT, "prompt"]).sum(numeric_only=True)


def prompt_weights(prompts: int, bootstrap: Bootstrap) -> np.ndarray:
    """[1 + resamples, prompts]: once each, then how often each resample draws them."""
    resamples, seed = bootstrap
    return np.vstack([np.ones(prompts), resampled_prompts(prompts, resamples, seed)])


def draw(sums: pd.DataFrame, bootstrap: Bootstrap) -> Drawn:
    """Drawn sums over prompts of every column of `sums`, which has a row for each prompt."""
    drawn = prompt_weights(len(sums), bootstrap) @ sums.to_numpy(dtype=float)
    return dict(zip(sums.columns, drawn.T, strict=True))


def draw_together(groups: Mapping[str, pd.DataFrame], bootstrap: Bootstrap) -> dict[str, Drawn]:
    """`draw` of several groups on the prompts that all have, with the same resamples for each: a paired bootstrap."""
    common = common_prompts(groups)
    return {name: draw(sums.loc[common], bootstrap) for name, sums in groups.items()}


def common_prompts(groups: Mapping[str, pd.DataFrame]) -> list[int]:
    """The prompts that every group, indexed by prompt, has; ascending."""
    return sorted(set.intersection(*(set(sums.index) for sums in groups.values())))


def _ratio(numerators: ArrayLike, denominators: ArrayLike, weights: np.ndarray) -> np.ndarray:
    over, under = np.asarray(numerators, dtype=float), np.asarray(denominators, dtype=float)
    return np.append(over.sum() / under.sum(), (weights @ over) / (weights @ under))


def _medians(values: Sequence[float], seed: int) -> np.ndarray:
    count = len(values)
    turns = np.random.default_rng(seed).integers(0, count, size=(RESAMPLES, count))
    return np.median(np.asarray(values, dtype=float)[np.vstack([np.arange(count), turns])], axis=1)


def _with_value(drawn: np.ndarray) -> Estimate:
    """An interval of medians can miss the median of all turns; it is widened to hold it."""
    found = estimate(drawn)
    return Estimate(found.value, min(found.low, found.value), max(found.high, found.value))
