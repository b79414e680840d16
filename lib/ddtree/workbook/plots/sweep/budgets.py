"""Which budget is fastest at each temperature: speed-up against budget, a line for each temperature, ties marked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from ddtree.workbook.plots.frames import at, error_bars, first_and_last, require, temperatures
from ddtree.workbook.plots.sweep.common import ordered_labels, resampled, sentence_on, tick
from ddtree.workbook.plots.theme import INK, dress, for_phone, temperature_colour
from ddtree.workbook.sweep.best import AUTO, say_auto, say_best

SPREAD = 0.5  # of the distance of two budgets, over which the temperatures stand side by side
RATED = ("ratio", "ratio_lo", "ratio_hi")


def draw_budgets(budgets: pd.DataFrame, slice_name: str) -> go.Figure:
    """Speed-up with 95 % intervals against tree budget; a star is the fastest, full circles are not clearly slower.

    Reads what `compare_budgets` returns for one slice, whose name it takes for the subtitle. Raises ValueError for a
    missing column, an empty frame, or a value outside its interval.
    """
    require(budgets, "budgets", ["temperature", "label", "speedup", "speedup_lo", "speedup_hi", *RATED, "best", "tied"])
    labels = ordered_labels(set(budgets["label"]))
    values = temperatures(budgets)
    figure = go.Figure()
    for number, temperature in enumerate(values):
        part = budgets[budgets["temperature"] == temperature]
        shift = SPREAD * (number / (len(values) - 1) - 0.5) if len(values) > 1 else 0.0
        colour = temperature_colour(temperature)
        fixed = part[part["label"] != AUTO]
        figure.add_scatter(
            x=[labels.index(label) + shift for label in fixed["label"]],
            y=fixed["speedup"].tolist(),
            mode="lines",
            name=at(temperature),
            legendgroup=at(temperature),
            line={"color": colour, "width": 1.5},
            hoverinfo="skip",
        )
        figure.add_trace(_marks(part, [labels.index(label) + shift for label in part["label"]], temperature))
    figure.add_hline(y=1, line={"color": INK, "width": 1, "dash": "dot"})
    ticks = {"tickvals": list(range(len(labels))), "ticktext": [tick(label) for label in labels]}
    figure.update_xaxes(title="tree budget", range=[-0.5, len(labels) - 0.5], **ticks)
    figure.update_yaxes(title="speed-up over autoregressive")
    ends = first_and_last(values)
    title = f"Best budget: {', '.join(say_best(budgets, temperature) for temperature in ends)}"
    auto = "; ".join(said for said in (say_auto(budgets, temperature) for temperature in ends) if said)
    marks = f"Star: fastest; full: not clearly slower; bars: {resampled(budgets['prompts'])}."
    subtitle = f"{marks}{f' Auto: {auto}.' if auto else ''}{sentence_on(slice_name)}"
    title, subtitle = for_phone(title, subtitle)
    return dress(figure, title=title, subtitle=subtitle, plot_height=320)


def _marks(part: pd.DataFrame, x: list[float], temperature: float) -> go.Scatter:
    colour = temperature_colour(temperature)
    return go.Scatter(
        x=x,
        y=part["speedup"].tolist(),
        mode="markers",
        legendgroup=at(temperature),
        showlegend=False,
        marker={
            "color": colour,
            "symbol": [_symbol(row) for row in part.to_dict("records")],
            "size": [14 if best else 9 for best in part["best"]],
            "line": {"color": colour, "width": 1.5},
        },
        error_y={**error_bars(part, "speedup"), "color": colour, "thickness": 1.2, "width": 3},
        text=part["label"].tolist(),
        customdata=part[["speedup_lo", "speedup_hi", *RATED, "prompts"]].to_numpy().tolist(),
        hovertemplate="%{text}: %{y:.2f} times autoregressive<br>95% interval %{customdata[0]:.2f} to "
        "%{customdata[1]:.2f}<br>%{customdata[2]:.2f} of the best fixed budget (%{customdata[3]:.2f} to "
        f"%{{customdata[4]:.2f}}), %{{customdata[5]}} prompts<extra>{at(temperature)}</extra>",
    )


def _symbol(row: Mapping[Any, Any]) -> str:
    if row["best"]:
        return "star"
    return "circle" if row["tied"] else "circle-open"
