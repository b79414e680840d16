"""Which tree budget is fastest at each temperature, and which are not clearly slower."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ddtree.workbook.stats import Estimate
from ddtree.workbook.sweep.resample import Bootstrap, columns, common_prompts, draw_together, estimate, prompt_sums

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
