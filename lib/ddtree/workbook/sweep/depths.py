"""How deep drafts are accepted at each temperature, with intervals over prompts."""

from __future__ import annotations

import pandas as pd

from ddtree.workbook.sweep.resample import Bootstrap, columns, draw, estimate

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
