"""What the figures of speed share: names of sizes, numbers with few digits, dots with intervals, and panels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ddtree.workbook.plots.panels import PANEL_GAP

FLOOR_DASH = "dot"
EVERY_LINE = {"tickmode": "linear", "dtick": 1}  # of an axis of names: no name is left out


def size_name(row: Mapping[Any, Any]) -> str:
    """ "V 151,936, batch 32, budget 64" """
    return f"V {row['vocab']:,}, batch {row['batch']}, budget {row['budget']}"


def microseconds(us: float) -> str:
    """ "0.4 µs", "730 µs", "5.2 ms" """
    if us >= 1000:
        return f"{us / 1000:.3g} ms"
    return f"{us:.3g} µs"


def times(value: float) -> str:
    """A ratio as a title says it: two digits below 10, none beyond."""
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def bars_of(frame: pd.DataFrame, value: str, colour: str) -> dict[str, Any]:
    """Error bars of a colour from VALUE, VALUE_lo and VALUE_hi."""
    return {
        "type": "data",
        "symmetric": False,
        "array": (frame[f"{value}_hi"] - frame[value]).clip(lower=0).tolist(),
        "arrayminus": (frame[value] - frame[f"{value}_lo"]).clip(lower=0).tolist(),
        "color": colour,
        "thickness": 1.2,
        "width": 3,
    }


def ratio_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten that lie between the two, for a logarithmic axis."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [factor * 10.0**power for power in powers for factor in (1, 2, 5) if low <= factor * 10.0**power <= high]


def panels(headings: Sequence[str], heights: Sequence[int]) -> go.Figure:
    """Panels of the given pixel heights above one another on one x axis, headed at the left."""
    total = sum(heights) + PANEL_GAP * (len(heights) - 1)
    figure = make_subplots(
        rows=len(headings),
        cols=1,
        shared_xaxes=True,
        row_heights=list(heights),
        vertical_spacing=PANEL_GAP / total if len(heights) > 1 else 0,
        subplot_titles=list(headings),
    )
    return figure.update_annotations(x=0, xanchor="left", font={"size": 13})
