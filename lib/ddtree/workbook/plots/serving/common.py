"""What the figures of serving share: the look of each server, the panels of step costs, and words on emulation."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ddtree.workbook.plots.panels import HEADER
from ddtree.workbook.plots.theme import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, dress, for_phone
from ddtree.workbook.serving.findings import label
from ddtree.workbook.serving.rates import DDTREE, in_order

TREE_LOOKS = ((BLUE, "circle"), (SKY, "square"), (GREEN, "triangle-up"), (PURPLE, "cross"), (VERMILION, "star"))

COST_GAP = 76  # pixels between panels that have tick labels of their own


class Look(NamedTuple):
    """How one server is drawn, in every figure of a run."""

    name: str
    label: str
    colour: str
    symbol: str


def looks(frame: pd.DataFrame) -> list[Look]:
    """The servers of `frame` (columns name, method, budget) in order; trees take turns with the five looks."""
    found: list[Look] = []
    trees = 0
    for name in in_order(frame):
        if name.startswith(DDTREE):
            colour, symbol = TREE_LOOKS[trees % len(TREE_LOOKS)]
            trees += 1
        else:
            colour, symbol = (GREY, "line-ns-open") if name == "plain" else (ORANGE, "diamond")
        found.append(Look(name, label(name), colour, symbol))
    return found


def cost_panels(headings: Sequence[str], heights: Sequence[int]) -> go.Figure:
    """Panels of the given pixel heights above one another, each with an x axis of its own, headed at the left."""
    total = sum(heights) + COST_GAP * (len(heights) - 1)
    figure = make_subplots(
        rows=len(headings),
        cols=1,
        row_heights=list(heights),
        vertical_spacing=COST_GAP / total if len(heights) > 1 else 0,
        subplot_titles=list(headings),
    )
    return figure.update_annotations(x=0, xanchor="left", font={"size": 13})


def dress_cost_panels(figure: go.Figure, title: str, subtitle: str, heights: Sequence[int]) -> go.Figure:
    """`dress` for `cost_panels`, titles broken for a phone."""
    total = sum(heights) + COST_GAP * (len(heights) - 1)
    title, subtitle = for_phone(title, subtitle)
    return dress(figure, title=title, subtitle=subtitle, plot_height=total, header=HEADER)


def places_apart(number: int, of: int, room: float) -> float:
    """The shift of one of several marks that share a place, all within `room` around it."""
    return room * (number / (of - 1) - 0.5) if of > 1 else 0.0


def interval_over(batch: int, units: pd.Series) -> str:
    """How an interval came about: "95% interval over 8 prompts", or that there is none."""
    what = "prompt" if batch == 1 else "repeat"
    least = int(units.min())
    return f"95% interval over {least} {what}s" if least > 1 else f"one {what}, so no interval"


def on_panels(costs: Collection[int]) -> str:
    """What a subtitle says of panels headed by short names of costs; "" for the model's own cost alone."""
    scales = " Scales differ." if len(costs) > 1 else ""
    return f"{scales} +N: N identity layers." if max(costs) else scales


def best_at(rated: pd.DataFrame, value: str, temperature: float) -> pd.Series:
    """The row with the largest `value` at a temperature."""
    return rated[rated["temperature"] == temperature].sort_values(value).iloc[-1]


def span(low: float, high: float, form: str = "{:.2f}") -> str:
    """ "1.20 to 1.45", or one number where both look the same."""
    first, last = form.format(low), form.format(high)
    return first if first == last else f"{first} to {last}"
