"""Speed, speed-up, acceptance and cost of every decoder at every temperature and budget of a sweep, with intervals."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, cast

import pandas as pd

from ddtree.workbook.sweep.resample import POINT, Bootstrap, columns, draw, estimate, prompt_sums

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
