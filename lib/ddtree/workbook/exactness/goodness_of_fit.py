"""Tests counts against exact distributions: a pooled G-test, what it would have missed, and Holm's correction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import stats
from scipy.optimize import brentq
from scipy.special import kl_div

ALPHA, POWER = 0.01, 0.99
LEAST_EXPECTED = 5.0  # of a cell; smaller ones are pooled
RESAMPLES = 200


@dataclass(frozen=True, slots=True)
class Cells:
    """Observed and expected counts of one group of draws, pooled so that no cell expects fewer than 5."""

    seen: np.ndarray  # float64 [cells]
    expected: np.ndarray  # float64 [cells], with the same sum as `seen` and `impossible`
    impossible: int  # draws of outcomes whose probability is 0

    @property
    def draws(self) -> float:
        return float(self.expected.sum())


@dataclass(frozen=True, slots=True)
class Fit:
    """The result of one test, over one group of draws or several."""

    draws: int
    cells: int
    statistic: float  # G with Williams' correction, over possible outcomes
    df: int
    p: float  # 0 if anything impossible was drawn
    tv: float  # total variation between the pooled observed shares and the exact distribution
    tv_lo: float  # 95 % interval
    tv_hi: float
    smallest_found: float  # every departure of at least this total variation is found with 99 % power at 1 %
    impossible: int


def pool(counts: np.ndarray, probs: np.ndarray) -> Cells:
    """Counts [k] against probabilities [k]: cells that expect fewer than 5 become one, the smallest others with it.

    Raises ValueError for shapes that differ.
    """
    counts, probs = np.asarray(counts, dtype=float), np.asarray(probs, dtype=float)
    if counts.shape != probs.shape:
        raise ValueError(f"counts have shape {counts.shape} and probs {probs.shape}; both need one entry per outcome.")
    possible = probs > 0
    impossible = int(counts[~possible].sum())
    expected = probs[possible] / probs.sum() * counts.sum()
    order = np.argsort(-expected, kind="stable")
    seen, expected = counts[possible][order], expected[order]
    kept = int((expected >= LEAST_EXPECTED).sum())
    if kept < len(expected):
        while kept and expected[kept:].sum() < LEAST_EXPECTED:
            kept -= 1
        seen, expected = (np.append(values[:kept], values[kept:].sum()) for values in (seen, expected))
    return Cells(seen, expected, impossible)


def fit(groups: Sequence[Cells], *, seed: int = 0) -> Fit:
    """One G-test over independent groups of draws, each against its own distribution.

    Total variation is weighted by draws. Its interval is the value plus or minus the 95 % quantile of the distance
    between a sample of this size and its own distribution (resampled), which bounds the error by the triangle
    inequality.
    """
    draws = sum(cells.draws for cells in groups)
    impossible = sum(cells.impossible for cells in groups)
    df = sum(len(cells.expected) - 1 for cells in groups)
    statistic = sum(_williams_g(cells) for cells in groups)
    distance = 0.5 * sum(np.abs(c.seen - c.expected).sum() + c.impossible for c in groups) / draws if draws else 0.0
    error = _sampling_error(groups, draws, np.random.default_rng(seed)) if draws else 0.0
    return Fit(
        draws=round(draws),
        cells=df + len(groups),
        statistic=float(statistic),
        df=df,
        p=0.0 if impossible else float(stats.chi2.sf(statistic, df)) if df else 1.0,
        tv=float(distance),
        tv_lo=max(0.0, float(distance - error)),
        tv_hi=min(1.0, float(distance + error)),
        smallest_found=smallest_departure([(c.draws, c.expected / c.draws) for c in groups if c.draws]),
        impossible=impossible,
    )


def smallest_departure(groups: Sequence[tuple[float, np.ndarray]]) -> float:
    """Total variation from which on a departure is found with 99 % power at level 1 %, in whatever direction.

    `groups` are (draws, probabilities [cells]). The statistic under a departure d is noncentral chi-square with
    noncentrality n * sum(d^2 / p). By Cauchy and Schwarz that is at least n * TV^2 / k with k = max a(1 - a) over sets
    of cells of mass a, reached when the cells of such a set all grow by one factor and the others shrink by one: the
    hardest direction. Where there is one cell only, a departure is an outcome of probability 0, found once it is drawn.
    """
    draws = sum(n for n, _ in groups)
    if not draws:
        return 1.0
    df = sum(len(probs) - 1 for _, probs in groups)
    if df == 0:
        return float(1 - (1 - POWER) ** (1 / draws))
    spread = sum(n * _largest_split(probs) for n, probs in groups)
    return min(1.0, math.sqrt(_noncentrality(df) * spread) / draws)


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Holm's adjusted p-values [m]: the chance that any true hypothesis falls below a level is at most that level."""
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return adjusted


def _williams_g(cells: Cells) -> float:
    """2 sum O ln(O/E), divided by Williams' factor: thousands of cells that expect 5 would else look like a misfit.

    kl_div adds E - O, which sums to 0 and keeps this a divergence also where impossible draws are missing from O;
    `scipy.stats.power_divergence` refuses such counts.
    """
    df, n = len(cells.expected) - 1, cells.draws
    if df == 0:
        return 0.0
    return float(2 * kl_div(cells.seen, cells.expected).sum() / (1 + ((n / cells.expected).sum() - 1) / (6 * n * df)))


def _sampling_error(groups: Sequence[Cells], draws: float, stream: np.random.Generator) -> float:
    distances = np.zeros(RESAMPLES)
    for cells in groups:
        seen = np.append(cells.seen, cells.impossible)
        if seen.sum():
            again = stream.multinomial(round(seen.sum()), seen / seen.sum(), size=RESAMPLES)
            distances += 0.5 * np.abs(again - seen).sum(axis=1) / draws
    return float(np.quantile(distances, 0.95))


def _largest_split(probs: np.ndarray) -> float:
    """max a(1 - a) over sets of cells; a quarter, slightly too cautious, where no cell holds half."""
    top = float(probs.max())
    return top * (1 - top) if top >= 0.5 else 0.25


@lru_cache(maxsize=4096)
def _noncentrality(df: int) -> float:
    critical = stats.chi2.isf(ALPHA, df)
    return float(brentq(lambda x: stats.ncx2.sf(critical, df, x) - POWER, 1e-3, 200 + 40 * math.sqrt(df)))
