"""Why a higher temperature is slower: the change of tokens per second split into acceptance and stages of a round.

Invariant: the parts, logarithms of factors, add up to the logarithm of the change exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ddtree.decode import STAGES
from ddtree.workbook.sweep.resample import (
    Bootstrap,
    Drawn,
    columns,
    common_prompts,
    draw_together,
    estimate,
    prompt_sums,
)

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
