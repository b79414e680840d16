"""Sums by prompt and their resamples, so that any formula of sums gets a 95 % interval over prompts.

Invariant: the first entry of every drawn array is the sum over all prompts, the rest are the bootstrap's.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from ddtree.decode import STAGES
from ddtree.workbook.stats import Estimate, resampled_prompts

STAGE_COLUMNS = [f"{stage}_ms" for stage in STAGES]
POINT = ["slice", "temperature", "label", "strategy", "budget"]
Drawn = dict[str, np.ndarray]  # column to [1 + resamples]
Bootstrap = tuple[int, int]  # resamples and seed


def prompt_sums(rounds: pd.DataFrame) -> pd.DataFrame:
    """Sums of a sweep's rounds by POINT and prompt, cells of one point pooled as repeats.

    Columns: rounds, tokens, ms and each stage's ms of the decoder; base_tokens and base_ms of the autoregressive
    rounds of the same cells, temperature and prompt; cells.
    """
    known = rounds.assign(rounds=1, ms=rounds[STAGE_COLUMNS].sum(axis=1), tokens=rounds["emitted"])
    place = ["cell", "temperature", "prompt"]
    by_cell = known.groupby([*POINT, "cell", "prompt"])[["rounds", "tokens", "ms", *STAGE_COLUMNS]].sum().reset_index()
    plain = by_cell[by_cell["strategy"] == "autoregressive"].set_index(place)[["tokens", "ms"]].add_prefix("base_")
    joined = by_cell.join(plain, on=place).assign(cells=1)
    return joined.groupby([*POINT, "prompt"]).sum(numeric_only=True)


def draw(sums: pd.DataFrame, bootstrap: Bootstrap) -> Drawn:
    """Sums over prompts of every column of `sums`, which has a row per prompt: first of all, then resampled."""
    drawn = prompt_weights(len(sums), bootstrap) @ sums.to_numpy(dtype=float)
    return dict(zip(sums.columns, drawn.T, strict=True))


def prompt_weights(prompts: int, bootstrap: Bootstrap) -> np.ndarray:
    """[1 + resamples, prompts]: once each, then how often each resample draws them."""
    resamples, seed = bootstrap
    return np.vstack([np.ones(prompts), resampled_prompts(prompts, resamples, seed)])


def draw_together(groups: Mapping[str, pd.DataFrame], bootstrap: Bootstrap) -> dict[str, Drawn]:
    """`draw` of several groups on the prompts that all have, with the same resamples for each: a paired bootstrap."""
    common = common_prompts(groups)
    return {name: draw(sums.loc[common], bootstrap) for name, sums in groups.items()}


def common_prompts(groups: Mapping[str, pd.DataFrame]) -> list[int]:
    """The prompts that every group, indexed by prompt, has; ascending."""
    return sorted(set.intersection(*(set(sums.index) for sums in groups.values())))


def estimate(drawn: np.ndarray) -> Estimate:
    """Value and percentile interval of [1 + resamples]; with one prompt the interval is the value itself."""
    low, high = np.percentile(drawn[1:], [2.5, 97.5])
    return Estimate(float(drawn[0]), float(low), float(high))


def columns(name: str, found: Estimate) -> dict[str, float]:
    """An estimate as three columns of a frame: NAME, NAME_lo, NAME_hi."""
    return {name: found.value, f"{name}_lo": found.low, f"{name}_hi": found.high}
