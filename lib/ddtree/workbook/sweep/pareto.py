"""Which decoders give more tokens for their time: the front of tokens per round against milliseconds per round."""

from __future__ import annotations

import pandas as pd


def mark_front(points: pd.DataFrame) -> pd.DataFrame:
    """`points` of one slice with a column `front`: no other of its temperature commits as many tokens in less time."""

    def on_front(row: pd.Series) -> bool:
        others = points[(points["temperature"] == row["temperature"]) & (points.index != row.name)]
        no_worse = (others["acceptance"] >= row["acceptance"]) & (others["round_ms"] <= row["round_ms"])
        better = (others["acceptance"] > row["acceptance"]) | (others["round_ms"] < row["round_ms"])
        return not bool((no_worse & better).any())

    return points.assign(front=[on_front(row) for _, row in points.iterrows()])
