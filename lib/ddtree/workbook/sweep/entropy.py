"""Whether a draft's acceptance depends on temperature once the entropy of the target's distribution is known.

Greedy rounds have no entropy of their own (one token has all the mass), so only sampled temperatures are compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ddtree.workbook.stats import Estimate
from ddtree.workbook.sweep.resample import Bootstrap, columns, draw, estimate, prompt_weights

EDGES = (0.0, 0.1, 0.3, 0.7, 1.2, 2.0, 3.0)  # nats; the last bin is open
KNOTS = (*EDGES, 5.0)  # of the curve that acceptance follows over entropy; it is flat beyond the last
ALL = -1.0  # stands for all sampled temperatures in the column `temperature`
MEASURED = ("offered", "accepted")
MATTERS = 0.01  # of probability: a smaller effect than a point is called none


@dataclass(frozen=True, slots=True)
class BeyondEntropy:
    """Change of the offered mass from one sampled temperature to a higher one, in two parts whose sum is `change`.

    `temperature` is the difference at equal entropy; `entropy` is the rest, which the shift of entropy explains.
    """

    cold: float
    hot: float
    change: Estimate
    entropy: Estimate
    temperature: Estimate
    prompts: int

    def explain(self) -> str:
        """The finding in plain words."""
        parts = f"{_points(self.entropy)} because entropy is higher, {_points(self.temperature)} at equal entropy"
        said = (
            f"From T = {self.cold:g} to T = {self.hot:g} the chance of a first draft changes by {_points(self.change)}"
        )
        return f"{said}: {parts}. {self.verdict}."

    @property
    def verdict(self) -> str:
        """What the interval of the part at equal entropy allows to say."""
        low, high = self.temperature.low, self.temperature.high
        if self.prompts < 2:
            return "One prompt cannot tell whether temperature matters beyond entropy"
        if low > -MATTERS and high < MATTERS:
            return "Once entropy is known, temperature changes acceptance by less than a point"
        if low <= 0 <= high:
            return "Once entropy is known, temperature makes no clear difference to acceptance"
        return f"Temperature {'lowers' if high < 0 else 'raises'} acceptance even at equal entropy"


def entropy_bins(rounds: pd.DataFrame, bootstrap: Bootstrap) -> pd.DataFrame:
    """Mean offered mass and mean accepted drafts by entropy, for one slice and label.

    A row for each temperature, and for all sampled ones together (temperature `ALL`), and each bin of EDGES that has
    rounds. Columns: temperature, bin, entropy (mean, nats), offered and accepted with _lo and _hi (95 %), rounds,
    prompts.
    """
    place = np.searchsorted(EDGES, rounds["entropy"].to_numpy(), side="right") - 1
    binned = rounds[["temperature", "prompt", "entropy", *MEASURED]].assign(bin=place, rounds=1)
    sampled = binned[binned["temperature"] > 0].assign(temperature=ALL)
    rows = []
    for (temperature, number), here in pd.concat([binned, sampled]).groupby(["temperature", "bin"]):
        sums = here.groupby("prompt")[["rounds", *MEASURED]].sum()
        drawn = draw(sums, bootstrap)
        row = {"temperature": temperature, "bin": number, "entropy": here["entropy"].mean()}
        row |= {"rounds": len(here), "prompts": len(sums)}
        for name in MEASURED:
            row |= columns(name, estimate(drawn[name] / drawn["rounds"]))
        rows.append(row)
    return pd.DataFrame(rows)


def beyond_entropy(rounds: pd.DataFrame, bootstrap: Bootstrap) -> BeyondEntropy | None:
    """The change of offered mass from the lowest to the highest sampled temperature of one slice and label, split.

    Offered mass is regressed on entropy, as a curve of straight pieces between KNOTS, and on which of the two
    temperatures a round has: the coefficient of the latter is the difference at equal entropy. Bins would not do, since
    heat moves entropy within each. None without two sampled temperatures on common prompts.
    """
    sampled = rounds[rounds["temperature"] > 0]
    cold, hot = sampled["temperature"].min(), sampled["temperature"].max()
    by_prompt = [own for _, own in sampled[sampled["temperature"].isin((cold, hot))].groupby("prompt")]
    common = [own for own in by_prompt if own["temperature"].nunique() == 2]
    if not common:
        return None
    weights = prompt_weights(len(common), bootstrap)
    means = {end: _mean_offered(common, end, weights) for end in (cold, hot)}
    change = means[hot] - means[cold]
    temperature = _coefficient(common, hot, weights)
    parts = (estimate(change), estimate(change - temperature), estimate(temperature))
    return BeyondEntropy(float(cold), float(hot), *parts, len(common))


def _mean_offered(by_prompt: list[pd.DataFrame], temperature: float, weights: np.ndarray) -> np.ndarray:
    offered = [own.loc[own["temperature"] == temperature, "offered"] for own in by_prompt]
    return (weights @ [o.sum() for o in offered]) / (weights @ [len(o) for o in offered])


def _coefficient(by_prompt: list[pd.DataFrame], hot: float, weights: np.ndarray) -> np.ndarray:
    """Least squares by weighted sums of the prompts' normal equations: [1 + resamples]."""
    squares, products = [], []
    for own in by_prompt:
        hats = [np.interp(own["entropy"], KNOTS, unit) for unit in np.eye(len(KNOTS))]
        design = np.column_stack([*hats, own["temperature"] == hot])
        squares.append(design.T @ design)
        products.append(design.T @ own["offered"].to_numpy())
    left, right = np.tensordot(weights, squares, axes=1), np.tensordot(weights, products, axes=1)
    solved = np.linalg.pinv(left, hermitian=True) @ right[..., None]  # a knot without rounds leaves it singular
    return solved[:, -1, 0]


def _points(found: Estimate) -> str:
    value, low, high = (f"{round(100 * bound, 1) + 0:+.1f}" for bound in (found.value, found.low, found.high))
    return f"{value} ({low} to {high}) points"  # + 0: no "-0.0"
