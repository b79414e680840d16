"""What the live figures read from their frames: columns that must be there, intervals, and texts for titles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from ddtree.workbook.plots.theme import STRATEGY_COLOURS


class Line(NamedTuple):
    """One decoder at one setting: "tree 16/4", its strategy, and its place among the labels of that strategy."""

    label: str
    strategy: str
    place: int


def require(frame: pd.DataFrame, name: str, columns: Iterable[str]) -> None:
    """Raises ValueError if `frame` has no rows or lacks columns, naming them."""
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise ValueError(f"{name} lacks the columns {', '.join(missing)}; it has {', '.join(map(str, frame.columns))}.")
    if frame.empty:
        raise ValueError(f"{name} has no rows; there is nothing to draw.")


def lines(frame: pd.DataFrame) -> list[Line]:
    """The labels of `frame`: autoregressive, chains, trees; smaller budgets first, then by name."""
    order = list(STRATEGY_COLOURS)
    kinds = frame[["label", "strategy", "budget"]].drop_duplicates().to_dict("records")
    kinds.sort(key=lambda kind: (order.index(kind["strategy"]), kind["budget"], kind["label"]))
    found: list[Line] = []
    for kind in kinds:
        place = sum(line.strategy == kind["strategy"] for line in found)
        found.append(Line(kind["label"], kind["strategy"], place))
    return found


def temperatures(frame: pd.DataFrame) -> list[float]:
    """The temperatures of `frame`, ascending."""
    return sorted(float(value) for value in frame["temperature"].unique())


def error_bars(frame: pd.DataFrame, value: str) -> dict[str, object]:
    """Plotly's error bars from the columns `value`, `value`_lo and `value`_hi.

    Raises ValueError where an interval does not hold its value.
    """
    above = (frame[f"{value}_hi"] - frame[value]).to_numpy(dtype=float)
    below = (frame[value] - frame[f"{value}_lo"]).to_numpy(dtype=float)
    wrong = np.flatnonzero((above < 0) | (below < 0))
    if wrong.size:
        row = frame.iloc[wrong[0]]
        raise ValueError(
            f"{value} of {row['label']} at temperature {row['temperature']:g} is {row[value]:g}, outside its interval "
            f"{row[f'{value}_lo']:g} to {row[f'{value}_hi']:g}."
        )
    return {"type": "data", "symmetric": False, "array": above.tolist(), "arrayminus": below.tolist()}


def at(temperature: float) -> str:
    """ "T = 0.6" """
    return f"T = {temperature:g}"


def first_and_last(values: Sequence[float]) -> list[float]:
    """What a title has room for: all of up to two values, else the first and the last."""
    return list(values) if len(values) <= 2 else [values[0], values[-1]]
