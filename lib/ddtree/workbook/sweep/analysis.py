"""Analyse a sweep: speed, acceptance and cost with intervals, best budgets, entropy, and why high T is slow.

The parts of a slow-down are logarithms of factors and add up exactly to the logarithm of the change. Greedy rounds have
no entropy of their own (one token has all the mass), so entropy compares only sampled temperatures."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd

from ddtree.decode import STAGES
from ddtree.workbook.stats import (
    POINT,
    Bootstrap,
    Drawn,
    Estimate,
    columns,
    common_prompts,
    draw,
    draw_together,
    estimate,
    prompt_sums,
    prompt_weights,
)

ORDER = {"autoregressive": 0, "chain": 1, "tree": 2}


def measure_points(rounds: pd.DataFrame, bootstrap: Bootstrap) -> pd.DataFrame:
    """One row for each slice, temperature and label; cells that differ in the seed alone are pooled.

    Columns: POINT; tokens_per_s, speedup (over the autoregressive rounds of the same cells), acceptance (tokens per
    round), round_ms, each with _lo and _hi (95 %, prompts resampled); cells, prompts, rounds, tokens. Time is that of
    the rounds' stages; prefill is none of it.
    """
    rows = [_row(key, sums, bootstrap) for key, sums in prompt_sums(rounds).groupby(POINT)]
    return _ordered(pd.DataFrame(rows))


def measure_cells(rounds: pd.DataFrame, bootstrap: Bootstrap) -> pd.DataFrame:
    """`measure_points` with nothing pooled: a row for each cell, temperature and label, the cell's id in front."""
    frames = []
    for cell, own in rounds.groupby("cell"):
        frame = measure_points(own, bootstrap)
        frame.insert(0, "cell", cell)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _row(key: Hashable, sums: pd.DataFrame, bootstrap: Bootstrap) -> dict[str, Any]:
    drawn = draw(sums, bootstrap)
    seconds, base_seconds = drawn["ms"] / 1e3, drawn["base_ms"] / 1e3
    speed = drawn["tokens"] / seconds
    row: dict[str, Any] = dict(zip(POINT, cast(tuple[Any, ...], key), strict=True))
    row |= columns("tokens_per_s", estimate(speed))
    row |= columns("speedup", estimate(speed / (drawn["base_tokens"] / base_seconds)))
    row |= columns("acceptance", estimate(drawn["tokens"] / drawn["rounds"]))
    row |= columns("round_ms", estimate(drawn["ms"] / drawn["rounds"]))
    counts: Mapping[str, int] = {name: int(drawn[name][0]) for name in ("rounds", "tokens")}
    return row | {"cells": int(sums["cells"].max()), "prompts": len(sums), **counts}


def _ordered(frame: pd.DataFrame) -> pd.DataFrame:
    """Fixed budgets ascending, the one chosen round by round after them."""
    chosen = frame["label"].str.endswith(" auto")
    ordered = frame.assign(kind=frame["strategy"].map(ORDER), chosen=chosen)
    by = ["slice", "temperature", "kind", "chosen", "budget"]
    return ordered.sort_values(by).drop(columns=["kind", "chosen"]).reset_index(drop=True)


DEEPEST = 8


def accepted_depths(rounds: pd.DataFrame, bootstrap: Bootstrap) -> pd.DataFrame:
    """Share of rounds that accepted at least d drafts, for one slice and label: a row for each temperature and d.

    d runs from 1 to the deepest acceptance, `DEEPEST` at most. Columns: temperature, depth, share with _lo and _hi
    (95 %), rounds, prompts.
    """
    deepest = min(DEEPEST, max(1, int(rounds["accepted"].max())))
    depths = list(range(1, deepest + 1))
    reached = rounds.assign(rounds=1, **{f"d{d}": (rounds["accepted"] >= d).astype(int) for d in depths})
    rows = []
    for temperature, here in reached.groupby("temperature"):
        sums = here.groupby("prompt")[["rounds", *(f"d{d}" for d in depths)]].sum()
        drawn = draw(sums, bootstrap)
        for d in depths:
            share = estimate(drawn[f"d{d}"] / drawn["rounds"])
            row = {"temperature": temperature, "depth": d, "rounds": len(here), "prompts": len(sums)}
            rows.append(row | columns("share", share))
    return pd.DataFrame(rows)


def mark_front(points: pd.DataFrame) -> pd.DataFrame:
    """`points` of one slice with a column `front`: no other of its temperature commits as many tokens in less time."""

    def on_front(row: pd.Series) -> bool:
        others = points[(points["temperature"] == row["temperature"]) & (points.index != row.name)]
        no_worse = (others["acceptance"] >= row["acceptance"]) & (others["round_ms"] <= row["round_ms"])
        better = (others["acceptance"] > row["acceptance"]) | (others["round_ms"] < row["round_ms"])
        return not bool((no_worse & better).any())

    return points.assign(front=[on_front(row) for _, row in points.iterrows()])


AUTO = "tree auto"


def compare_budgets(rounds: pd.DataFrame, bootstrap: Bootstrap) -> pd.DataFrame:
    """Every tree of one slice against the fastest fixed budget of its temperature, on the same resampled prompts.

    Columns: temperature, label, budget, speedup and ratio (of speed-ups, own over the fastest fixed one's), each with
    _lo and _hi; best; tied (the interval of the ratio holds 1, or there are too few prompts for one); prompts.
    A speed-up is over the autoregressive rounds of the same cells, so that a slower hour of the machine cancels.
    Temperatures without a tree of fixed budget are left out.
    """
    rows = []
    trees = prompt_sums(rounds).query("strategy == 'tree'").droplevel(["slice", "strategy"])
    for temperature, here in trees.groupby("temperature"):
        groups = {
            str(label): sums.droplevel(["temperature", "label", "budget"]) for label, sums in here.groupby("label")
        }
        prompts = len(common_prompts(groups))
        fixed = [label for label in groups if label != AUTO]
        if not fixed or not prompts:
            continue
        budgets = dict(zip(here.reset_index()["label"], here.reset_index()["budget"], strict=True))
        speedups = {
            label: drawn["tokens"] / drawn["ms"] / (drawn["base_tokens"] / drawn["base_ms"])
            for label, drawn in draw_together(groups, bootstrap).items()
        }
        best = max(fixed, key=lambda label: float(speedups[label][0]))
        for label in sorted(groups, key=lambda label: (label == AUTO, budgets[label])):
            ratio = estimate(speedups[label] / speedups[best])
            row = {"temperature": temperature, "label": label, "budget": int(budgets[label])}
            row |= columns("speedup", estimate(speedups[label])) | columns("ratio", ratio)
            rows.append(row | {"best": label == best, "tied": _tied(ratio, prompts), "prompts": prompts})
    return pd.DataFrame(rows)


def reference_label(points: pd.DataFrame) -> str:
    """The decoder that a sweep's figures speak of: of those with the most temperatures, the one with the highest mean
    speed-up (geometric), trees before the chain. Chosen over all temperatures, it favours neither end.

    Raises ValueError if no decoder of `points`, one slice, drafts.
    """
    drafting = points[points["strategy"] != "autoregressive"]
    if drafting.empty:
        raise ValueError("points holds autoregressive decoding alone; a chain or a tree is needed.")
    by_label = drafting.assign(log=np.log(drafting["speedup"])).groupby("label")
    ranked = by_label.agg(count=("log", "size"), mean=("log", "mean"), strategy=("strategy", "first"))
    ranked["tree"] = ranked["strategy"] == "tree"
    return str(ranked.sort_values(["tree", "count", "mean"]).index[-1])


def say_best(budgets: pd.DataFrame, temperature: float) -> str:
    """ "16 at T = 1", or "no clear winner at T = 1 (8, 16)" where another fixed budget is not clearly slower."""
    here = budgets[(budgets["temperature"] == temperature) & (budgets["label"] != AUTO)]
    if len(here) == 1:
        return f"{here['budget'].iloc[0]} at T = {temperature:g} (no other)"
    close = [str(budget) for budget in here.loc[here["tied"], "budget"]]
    if len(close) > 1:
        return f"no clear winner at T = {temperature:g} ({', '.join(close)})"
    return f"{here.loc[here['best'], 'budget'].iloc[0]} at T = {temperature:g}"


def say_auto(budgets: pd.DataFrame, temperature: float) -> str:
    """How the budget chosen round by round compares with the fastest fixed one; "" where it was not measured."""
    here = budgets[(budgets["temperature"] == temperature) & (budgets["label"] == AUTO)]
    if here.empty:
        return ""
    row = here.iloc[0]
    clear = "no clear difference" if row["tied"] else "clearly slower" if row["ratio"] < 1 else "clearly faster"
    interval = f"{row['ratio_lo']:.2f} to {row['ratio_hi']:.2f}"
    return f"{row['ratio']:.2f} of the best fixed speed at T = {temperature:g} ({interval}, {clear})"


def _tied(ratio: Estimate, prompts: int) -> bool:
    return prompts < 2 or ratio.low <= 1 <= ratio.high


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


PARTS = ("acceptance", *STAGES)


def split_slowdown(rounds: pd.DataFrame, bootstrap: Bootstrap) -> pd.DataFrame:
    """A row for each label of one slice, from the slice's lowest temperature to its highest; both must have it.

    Columns: label, strategy, cold, hot (temperatures); tokens_per_s, acceptance and round_ms, each with _cold and _hot;
    speed, fewer and longer: the factors hot over cold of tokens per second and of tokens per round, and cold over hot
    of round time, speed = fewer x longer; part_acceptance and part_STAGE: the logarithms that add up to log(speed);
    share_acceptance and share_time of that logarithm, NaN where `clear` is false, since the interval of speed holds 1
    or there are too few prompts for one; prompts. Factors, parts and shares have _lo and _hi (95 %).
    With one temperature there is no row.
    """
    sums = prompt_sums(rounds).droplevel(["slice", "budget"])
    cold, hot = float(rounds["temperature"].min()), float(rounds["temperature"].max())
    rows = []
    for (label, strategy), mine in sums.groupby(["label", "strategy"]):
        measured = {temperature: own.droplevel([0, 1, 2]) for temperature, own in mine.groupby("temperature")}
        if cold == hot or not {cold, hot} <= set(measured):
            continue
        ends = {"cold": measured[cold], "hot": measured[hot]}
        if prompts := len(common_prompts(ends)):
            row = {"label": label, "strategy": strategy, "cold": cold, "hot": hot, "prompts": prompts}
            rows.append(row | _split(draw_together(ends, bootstrap), prompts))
    return pd.DataFrame(rows)


def explain(row: Mapping[Any, Any]) -> str:
    """What a row of `split_slowdown` says, in plain words."""
    ends = f"From T = {row['cold']:g} to T = {row['hot']:g}, {row['label']} decoding"
    change = f"{ends} goes from {row['tokens_per_s_cold']:.1f} to {row['tokens_per_s_hot']:.1f} tokens/s"
    factor = f"factor {row['speed']:.2f}, {row['speed_lo']:.2f} to {row['speed_hi']:.2f}"
    if not row["clear"]:
        return f"{change} ({factor}): {why_unclear(row)}, so there is nothing to share out."
    noun = "loss" if row["speed"] < 1 else "gain"
    acceptance, time = (_said(row, f"share_{name}") for name in ("acceptance", "time"))
    return (
        f"{change} ({factor}). {acceptance} of the {noun} comes from acceptance "
        f"({row['acceptance_cold']:.2f} to {row['acceptance_hot']:.2f} tokens per round), {time} from round time "
        f"({row['round_ms_cold']:.1f} to {row['round_ms_hot']:.1f} ms{_largest_stage(row)})."
    )


def why_unclear(row: Mapping[Any, Any]) -> str:
    """Why a row that is not `clear` is not."""
    return "no clear change" if row["prompts"] > 1 else "one prompt gives no interval"


def _split(drawn: Mapping[str, Drawn], prompts: int) -> dict[str, Any]:
    speed_of = {end: 1e3 * d["tokens"] / d["ms"] for end, d in drawn.items()}
    length_of = {end: d["tokens"] / d["rounds"] for end, d in drawn.items()}
    time_of = {end: d["ms"] / d["rounds"] for end, d in drawn.items()}
    row: dict[str, Any] = {
        f"{name}_{end}": float(values[end][0])
        for name, values in {"tokens_per_s": speed_of, "acceptance": length_of, "round_ms": time_of}.items()
        for end in ("cold", "hot")
    }
    speed = speed_of["hot"] / speed_of["cold"]
    fewer, longer = length_of["hot"] / length_of["cold"], time_of["cold"] / time_of["hot"]
    changed = estimate(speed)
    row |= columns("speed", changed) | columns("fewer", estimate(fewer)) | columns("longer", estimate(longer))
    parts = {"acceptance": np.log(fewer)} | _stage_parts(drawn, time_of)
    for name in PARTS:
        row |= columns(f"part_{name}", estimate(parts[name]))
    clear = prompts > 1 and not changed.low <= 1 <= changed.high
    share = np.log(fewer) / np.log(speed) if clear else np.full_like(speed, np.nan)
    row |= columns("share_acceptance", estimate(share)) | columns("share_time", estimate(1 - share))
    return row | {"clear": clear}


def _stage_parts(drawn: Mapping[str, Drawn], time_of: Mapping[str, np.ndarray]) -> Drawn:
    """The fall of each stage's time over the logarithmic mean of the round times: these add up to log(longer)."""
    cold, hot = time_of["cold"], time_of["hot"]
    same = np.isclose(cold, hot, rtol=1e-9, atol=0)
    mean = np.where(same, cold, (hot - cold) / np.where(same, 1, np.log(hot / cold)))

    def of_round(end: str, stage: str) -> np.ndarray:
        return drawn[end][f"{stage}_ms"] / drawn[end]["rounds"]

    return {stage: (of_round("cold", stage) - of_round("hot", stage)) / mean for stage in STAGES}


def _said(row: Mapping[Any, Any], name: str) -> str:
    value, low, high = (f"{round(row[f'{name}{end}'], 2) + 0:.0%}" for end in ("", "_lo", "_hi"))  # + 0: no "-0%"
    return f"{value} ({low} to {high})"


def _largest_stage(row: Mapping[Any, Any]) -> str:
    """The stage that moved the round time most, if its interval says that it moved the way the round time did."""
    way = np.sign(row["longer"] - 1)
    stage = max(STAGES, key=lambda name: float(way * row[f"part_{name}"]))
    clear = way * row[f"part_{stage}_lo"] > 0 and way * row[f"part_{stage}_hi"] > 0
    return f", mostly {stage}" if clear else ""
