"""Analyse a sweep: speed, acceptance and cost with intervals, best budgets, entropy, and why high T is slower.

The parts of a slow-down are logarithms of factors and add up exactly to the logarithm of the change. Greedy rounds have
entropy 0 (one token has all the mass), so entropy compares only sampled temperatures. Every interval is 95 %, by
resampling whole prompts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ddtree.decode import STAGES
from ddtree.workbook.stats import (
    POINT,
    Bootstrap,
    Drawn,
    Estimate,
    common_prompts,
    draw,
    draw_together,
    estimate,
    estimates,
    prompt_sums,
    prompt_weights,
)

AUTO = "tree auto"
STRATEGIES = {"autoregressive": 0, "chain": 1, "tree": 2}  # in the order of tables
MAX_DEPTH = 8  # of the acceptance by depth
EDGES = (0.0, 0.1, 0.3, 0.7, 1.2, 2.0, 3.0)  # nats; the last bin is open
KNOTS = (*EDGES, 5.0)  # of the curve that acceptance follows over entropy; it is flat beyond the last
ALL = -1.0  # stands for all sampled temperatures in the column `temperature`
MEASURED = ("offered", "accepted")
NEGLIGIBLE = 0.01  # of probability: a smaller effect than a point is called none
PARTS = ("acceptance", *STAGES)


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
        return (
            f"From T = {self.cold:g} to T = {self.hot:g} the chance of a first draft changes by "
            f"{_in_points(self.change)}: {_in_points(self.entropy)} because entropy is higher, "
            f"{_in_points(self.temperature)} at equal entropy. {self.verdict}."
        )

    @property
    def verdict(self) -> str:
        """What the interval of the part at equal entropy allows to say."""
        low, high = self.temperature.low, self.temperature.high
        if self.prompts < 2:
            return "One prompt cannot tell whether temperature matters beyond entropy"
        if low > -NEGLIGIBLE and high < NEGLIGIBLE:
            return "Once entropy is known, temperature changes acceptance by less than a point"
        if low <= 0 <= high:
            return "Once entropy is known, temperature makes no clear difference to acceptance"
        return f"Temperature {'lowers' if high < 0 else 'raises'} acceptance even at equal entropy"


def measure_points(rounds: pd.DataFrame, bootstrap: Bootstrap) -> pd.DataFrame:
    """One row for each group, temperature and label; cells that differ only in the seed are pooled.

    Columns: POINT; tokens_per_s, speedup (over the autoregressive rounds of the same cells), acceptance (tokens per
    round), round_ms, each with _lo and _hi; cells, prompts, rounds, tokens. Time is that of the rounds' stages, without
    the prefill. Fixed budgets ascend, the one chosen round by round comes after them.
    """
    rows: list[dict[str, Any]] = []
    for key, sums in prompt_sums(rounds).groupby(POINT):
        drawn = draw(sums, bootstrap)
        speed = drawn["tokens"] / (drawn["ms"] / 1e3)
        intervals = estimates(
            tokens_per_s=speed,
            speedup=speed / (drawn["base_tokens"] / (drawn["base_ms"] / 1e3)),
            acceptance=drawn["tokens"] / drawn["rounds"],
            round_ms=drawn["ms"] / drawn["rounds"],
        )
        counts = {"cells": int(sums["cells"].max()), "prompts": len(sums)}
        counts |= {name: int(drawn[name][0]) for name in ("rounds", "tokens")}
        rows.append(dict(zip(POINT, key, strict=True)) | intervals | counts)
    frame = pd.DataFrame(rows)
    frame = frame.assign(kind=frame["strategy"].map(STRATEGIES), auto=frame["label"].str.endswith(" auto"))
    ordered = frame.sort_values(["slice", "temperature", "kind", "auto", "budget"])
    return ordered.drop(columns=["kind", "auto"]).reset_index(drop=True)


def measure_cells(rounds: pd.DataFrame, bootstrap: Bootstrap) -> pd.DataFrame:
    """`measure_points` with nothing pooled: a row for each cell, temperature and label, the cell's id in front."""
    by_cell = {cell: measure_points(own, bootstrap) for cell, own in rounds.groupby("cell")}
    return pd.concat(by_cell, names=["cell"]).reset_index("cell").reset_index(drop=True)


def accepted_depths(rounds: pd.DataFrame, bootstrap: Bootstrap) -> pd.DataFrame:
    """Share of rounds that accepted at least d drafts, for one group and label: a row for each temperature and d.

    d runs from 1 to the deepest acceptance, `MAX_DEPTH` at most. Columns: temperature, depth, share with _lo and _hi,
    rounds, prompts.
    """
    depths = range(1, min(MAX_DEPTH, max(1, int(rounds["accepted"].max()))) + 1)
    reached = rounds[["temperature", "prompt"]].assign(rounds=1, **{f"d{d}": rounds["accepted"] >= d for d in depths})
    rows = []
    for temperature, here in reached.groupby("temperature"):
        sums = here.drop(columns="temperature").groupby("prompt").sum()
        drawn = draw(sums, bootstrap)
        counts = {"rounds": len(here), "prompts": len(sums)}
        for d in depths:
            row = {"temperature": temperature, "depth": d, **counts}
            rows.append(row | estimates(share=drawn[f"d{d}"] / drawn["rounds"]))
    return pd.DataFrame(rows)


def mark_front(points: pd.DataFrame) -> pd.DataFrame:
    """`points` of one group with a column `front`: no other of its temperature commits as many tokens in less time."""
    t, tokens, ms = (points[name].to_numpy() for name in ("temperature", "acceptance", "round_ms"))
    no_worse = (tokens >= tokens[:, None]) & (ms <= ms[:, None])
    better = (tokens > tokens[:, None]) | (ms < ms[:, None])
    return points.assign(front=~(no_worse & better & (t == t[:, None])).any(axis=1))


def compare_budgets(rounds: pd.DataFrame, bootstrap: Bootstrap) -> pd.DataFrame:
    """Every tree of one group against the fastest fixed budget of its temperature, on the same resampled prompts.

    Columns: temperature, label, budget, speedup and ratio (of speed-ups, own over the fastest fixed one's), each with
    _lo and _hi; best; tied (the interval of the ratio holds 1, or there are too few prompts for one); prompts.
    A speed-up is over the autoregressive rounds of the same cells, so that a slower hour of the machine cancels.
    Temperatures without a tree of fixed budget are left out.
    """
    rows = []
    trees = prompt_sums(rounds).query("strategy == 'tree'").droplevel(["slice", "strategy"])
    for temperature, here in trees.groupby("temperature"):
        by_budget = sorted(here.groupby(["label", "budget"]), key=lambda group: (group[0][0] == AUTO, group[0][1]))
        budgets = {str(key[0]): int(str(key[1])) for key, _ in by_budget}
        groups = {str(key[0]): sums.droplevel(["temperature", "label", "budget"]) for key, sums in by_budget}
        prompts = len(common_prompts(groups))
        fixed = [label for label in groups if label != AUTO]
        if not fixed or not prompts:
            continue
        speedups = {
            label: drawn["tokens"] / drawn["ms"] / (drawn["base_tokens"] / drawn["base_ms"])
            for label, drawn in draw_together(groups, bootstrap).items()
        }
        best = max(sorted(fixed), key=lambda label: float(speedups[label][0]))
        for label, speedup in speedups.items():
            row: dict[str, Any] = {"temperature": temperature, "label": label, "budget": budgets[label]}
            row |= estimates(speedup=speedup, ratio=speedup / speedups[best])
            tied = prompts < 2 or row["ratio_lo"] <= 1 <= row["ratio_hi"]
            rows.append(row | {"best": label == best, "tied": tied, "prompts": prompts})
    return pd.DataFrame(rows)


def reference_label(points: pd.DataFrame) -> str:
    """The decoder that a sweep's figures describe: of those with the most temperatures, the one with the highest mean
    speed-up (geometric), trees before the chain. Chosen over all temperatures, it favours neither end.

    Raises ValueError if no decoder of `points`, one group, drafts.
    """
    drafting = points[points["strategy"] != "autoregressive"]
    if drafting.empty:
        raise ValueError("points holds only autoregressive decoding; a chain or a tree is needed.")
    by_label = drafting.assign(log=np.log(drafting["speedup"]), tree=drafting["strategy"] == "tree").groupby("label")
    ranked = by_label.agg(tree=("tree", "first"), count=("log", "size"), mean=("log", "mean"))
    return str(ranked.sort_values(["tree", "count", "mean"]).index[-1])


def describe_best(budgets: pd.DataFrame, temperature: float) -> str:
    """ "16 at T = 1", or "no clear winner at T = 1 (8, 16)" where another fixed budget is not clearly slower."""
    here = budgets[(budgets["temperature"] == temperature) & (budgets["label"] != AUTO)]
    if len(here) == 1:
        return f"{here['budget'].iloc[0]} at T = {temperature:g} (no other)"
    close = [str(budget) for budget in here.loc[here["tied"], "budget"]]
    if len(close) > 1:
        return f"no clear winner at T = {temperature:g} ({', '.join(close)})"
    return f"{here.loc[here['best'], 'budget'].iloc[0]} at T = {temperature:g}"


def describe_auto(budgets: pd.DataFrame, temperature: float) -> str:
    """How the budget chosen round by round compares with the fastest fixed one; "" where it was not measured."""
    here = budgets[(budgets["temperature"] == temperature) & (budgets["label"] == AUTO)]
    if here.empty:
        return ""
    row = here.iloc[0]
    clear = "no clear difference" if row["tied"] else "clearly slower" if row["ratio"] < 1 else "clearly faster"
    interval = f"{row['ratio_lo']:.2f} to {row['ratio_hi']:.2f}"
    return f"{row['ratio']:.2f} of the best fixed speed at T = {temperature:g} ({interval}, {clear})"


def entropy_bins(rounds: pd.DataFrame, bootstrap: Bootstrap) -> pd.DataFrame:
    """Mean offered mass and mean accepted drafts by entropy, for one group and label.

    A row for each temperature, and for all sampled ones together (temperature `ALL`), and each bin of EDGES that has
    rounds. Columns: temperature, bin, entropy (mean, nats), offered and accepted with _lo and _hi, rounds, prompts.
    """
    bins = np.searchsorted(EDGES, rounds["entropy"].to_numpy(), side="right") - 1
    binned = rounds[["temperature", "prompt", "entropy", *MEASURED]].assign(bin=bins, rounds=1)
    sampled = binned[binned["temperature"] > 0].assign(temperature=ALL)
    rows = []
    for (temperature, number), here in pd.concat([binned, sampled]).groupby(["temperature", "bin"]):
        sums = here.groupby("prompt")[["rounds", *MEASURED]].sum()
        drawn = draw(sums, bootstrap)
        row = {"temperature": temperature, "bin": number, "entropy": here["entropy"].mean()}
        row |= {"rounds": len(here), "prompts": len(sums)}
        rows.append(row | estimates(**{name: drawn[name] / drawn["rounds"] for name in MEASURED}))
    return pd.DataFrame(rows)


def beyond_entropy(rounds: pd.DataFrame, bootstrap: Bootstrap) -> BeyondEntropy | None:
    """The change of offered mass from the lowest to the highest sampled temperature of one group and label, split.

    Offered mass is regressed on entropy, as a curve of straight pieces between KNOTS, and on which of the two
    temperatures a round has: the coefficient of the latter is the difference at equal entropy. Bins would not do, since
    temperature moves entropy within each. None without two sampled temperatures on common prompts.
    """
    sampled = rounds[rounds["temperature"] > 0]
    low_t, high_t = sampled["temperature"].min(), sampled["temperature"].max()
    by_prompt = [own for _, own in sampled[sampled["temperature"].isin((low_t, high_t))].groupby("prompt")]
    common = [own for own in by_prompt if own["temperature"].nunique() == 2]
    if not common:
        return None
    weights = prompt_weights(len(common), bootstrap)
    change = _mean_offered(common, high_t, weights) - _mean_offered(common, low_t, weights)
    temperature = _coefficient(common, high_t, weights)
    parts = (estimate(change), estimate(change - temperature), estimate(temperature))
    return BeyondEntropy(float(low_t), float(high_t), *parts, len(common))


def split_slowdown(rounds: pd.DataFrame, bootstrap: Bootstrap) -> pd.DataFrame:
    """A row for each label of one group, from the group's lowest temperature to its highest; both must have it.

    Columns: label, strategy, cold, hot (the lowest and the highest temperature); tokens_per_s, acceptance and round_ms,
    each with _cold and _hot; speed, fewer and longer: the factors hot over cold of tokens per second and of tokens per
    round, and cold over hot of round time, speed = fewer x longer; part_acceptance and part_STAGE: the logarithms that
    add up to log(speed); share_acceptance and share_time of that logarithm, NaN where `clear` is false, since the
    interval of speed holds 1 or there are too few prompts for one; prompts. Factors, parts and shares have _lo and _hi.
    With one temperature there is no row.
    """
    low_t, high_t = float(rounds["temperature"].min()), float(rounds["temperature"].max())
    rows: list[dict[str, Any]] = []
    sums = prompt_sums(rounds).droplevel(["slice", "budget"])
    for (label, strategy), own in sums.groupby(["label", "strategy"]):
        by_t = {t: at_t.droplevel([0, 1, 2]) for t, at_t in own.groupby("temperature")}
        if low_t == high_t or not {low_t, high_t} <= set(by_t):
            continue
        ends = {"cold": by_t[low_t], "hot": by_t[high_t]}
        if prompts := len(common_prompts(ends)):
            row = {"label": label, "strategy": strategy, "cold": low_t, "hot": high_t, "prompts": prompts}
            rows.append(row | _split(draw_together(ends, bootstrap), prompts))
    return pd.DataFrame(rows)


def explain(row: Mapping[Any, Any]) -> str:
    """What a row of `split_slowdown` says, in plain words."""
    change = (
        f"From T = {row['cold']:g} to T = {row['hot']:g}, {row['label']} decoding goes from "
        f"{row['tokens_per_s_cold']:.1f} to {row['tokens_per_s_hot']:.1f} tokens/s "
        f"(factor {row['speed']:.2f}, {row['speed_lo']:.2f} to {row['speed_hi']:.2f})"
    )
    if not row["clear"]:
        return f"{change}: {why_unclear(row)}, so there is nothing to share out."
    noun = "loss" if row["speed"] < 1 else "gain"
    return (
        f"{change}. {_share(row, 'share_acceptance')} of the {noun} comes from acceptance "
        f"({row['acceptance_cold']:.2f} to {row['acceptance_hot']:.2f} tokens per round), {_share(row, 'share_time')} "
        f"from round time ({row['round_ms_cold']:.1f} to {row['round_ms_hot']:.1f} ms{_largest_stage(row)})."
    )


def why_unclear(row: Mapping[Any, Any]) -> str:
    """Why a row that is not `clear` is not."""
    return "no clear change" if row["prompts"] > 1 else "one prompt gives no interval"


def _mean_offered(by_prompt: list[pd.DataFrame], temperature: float, weights: np.ndarray) -> np.ndarray:
    offered = [own.loc[own["temperature"] == temperature, "offered"] for own in by_prompt]
    return (weights @ [o.sum() for o in offered]) / (weights @ [len(o) for o in offered])


def _coefficient(by_prompt: list[pd.DataFrame], high_t: float, weights: np.ndarray) -> np.ndarray:
    """Least squares by weighted sums of the prompts' normal equations: [1 + resamples]."""
    squares, products = [], []
    for own in by_prompt:
        hats = [np.interp(own["entropy"], KNOTS, unit) for unit in np.eye(len(KNOTS))]
        design = np.column_stack([*hats, own["temperature"] == high_t])
        squares.append(design.T @ design)
        products.append(design.T @ own["offered"].to_numpy())
    left, right = np.tensordot(weights, squares, axes=1), np.tensordot(weights, products, axes=1)
    solved = np.linalg.pinv(left, hermitian=True) @ right[..., None]  # a knot without rounds leaves it singular
    return solved[:, -1, 0]


def _in_points(found: Estimate) -> str:
    value, low, high = (f"{round(100 * bound, 1) + 0:+.1f}" for bound in (found.value, found.low, found.high))
    return f"{value} ({low} to {high}) points"  # + 0: no "-0.0"


def _split(drawn: Mapping[str, Drawn], prompts: int) -> dict[str, Any]:
    values = {
        "tokens_per_s": {end: 1e3 * d["tokens"] / d["ms"] for end, d in drawn.items()},
        "acceptance": {end: d["tokens"] / d["rounds"] for end, d in drawn.items()},
        "round_ms": {end: d["ms"] / d["rounds"] for end, d in drawn.items()},
    }
    row: dict[str, Any] = {f"{name}_{end}": float(own[end][0]) for name, own in values.items() for end in own}
    speed, fewer = (values[name]["hot"] / values[name]["cold"] for name in ("tokens_per_s", "acceptance"))
    longer = values["round_ms"]["cold"] / values["round_ms"]["hot"]
    parts = {"acceptance": np.log(fewer)} | _stage_parts(drawn, values["round_ms"])
    row |= estimates(speed=speed, fewer=fewer, longer=longer, **{f"part_{name}": parts[name] for name in PARTS})
    clear = prompts > 1 and not row["speed_lo"] <= 1 <= row["speed_hi"]
    share = np.log(fewer) / np.log(speed) if clear else np.full_like(speed, np.nan)
    return row | estimates(share_acceptance=share, share_time=1 - share) | {"clear": clear}


def _stage_parts(drawn: Mapping[str, Drawn], round_ms: Drawn) -> Drawn:
    """The fall of each stage's time over the logarithmic mean of the round times: these add up to log(longer)."""
    low, high = round_ms["cold"], round_ms["hot"]
    same = np.isclose(low, high, rtol=1e-9, atol=0)
    mean = np.where(same, low, (high - low) / np.where(same, 1, np.log(high / low)))
    stage_ms = {end: {stage: d[f"{stage}_ms"] / d["rounds"] for stage in STAGES} for end, d in drawn.items()}
    return {stage: (stage_ms["cold"][stage] - stage_ms["hot"][stage]) / mean for stage in STAGES}


def _share(row: Mapping[Any, Any], name: str) -> str:
    value, low, high = (f"{round(row[f'{name}{end}'], 2) + 0:.0%}" for end in ("", "_lo", "_hi"))  # + 0: no "-0%"
    return f"{value} ({low} to {high})"


def _largest_stage(row: Mapping[Any, Any]) -> str:
    """The stage that moved the round time most, if its interval says that it moved the way the round time did."""
    way = np.sign(row["longer"] - 1)
    stage = max(STAGES, key=lambda name: float(way * row[f"part_{name}"]))
    clear = way * row[f"part_{stage}_lo"] > 0 and way * row[f"part_{stage}_hi"] > 0
    return f", mostly {stage}" if clear else ""
