"""Counts of first tokens against what the law expects: what ships inside its band, the controls outside of theirs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots
from scipy.stats import binom

from ddtree.workbook.exactness.distributions import TARGET_ONLY
from ddtree.workbook.theme import (
    FOOTER_ROOM,
    HEADER,
    INK,
    PANEL_GAP,
    at,
    dress,
    for_phone,
    require,
    temperature_colour,
    temperatures,
)

COLUMNS = ("rule", "temperature", "filter", "tree", "expected", "seen")
CONTROL_COLOURS = ("#CC6677", "#AA4499", "#44AA99", "#999933", "#8877DD", "#661100")  # none of a temperature
CONTROL_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "star")
PANEL, LEGEND_ROWS = 230, 84  # pixels: of a panel; of the legend's rows beyond the first
BAND = "rgba(128, 128, 128, 0.25)"
NONE_SEEN = 0.5  # a count of 0, on a logarithmic axis


def draw_laws(cells: pd.DataFrame) -> go.Figure:
    """Seen over expected against expected, log-log, with the exact binomial 95% band; controls in a panel below.

    Reads rule, temperature, filter, tree, expected and seen, one row a cell. Of what ships, the unfiltered settings
    of the controls' tree are drawn (of every tree where there are no controls). A cell that nothing fell into is drawn
    at half a count. Raises ValueError for a missing column or an empty frame.
    """
    require(cells, "cells", COLUMNS)
    controls = cells[cells["rule"] != TARGET_ONLY.name]
    ours = cells[(cells["rule"] == TARGET_ONLY.name) & (cells["filter"] == "none")]
    if len(controls):
        ours = ours[ours["tree"].isin(controls["tree"])]
    require(ours, "cells of the rule that ships, unfiltered,", COLUMNS)
    panels = ["the verify that ships", "controls, wrong on purpose"][: 2 if len(controls) else 1]
    total = PANEL * len(panels) + PANEL_GAP * (len(panels) - 1)
    figure = make_subplots(
        rows=len(panels), cols=1, shared_xaxes=True, vertical_spacing=PANEL_GAP / total, subplot_titles=panels
    ).update_annotations(x=0, xanchor="left", font={"size": 13})
    draws = ours.groupby(["temperature", "tree"])["expected"].sum().max()
    for row in range(1, len(panels) + 1):
        _add_band(figure, row, draws, cells["expected"].min())
    for temperature in temperatures(ours):
        part = ours[ours["temperature"] == temperature]
        figure.add_trace(_points(part, at(temperature), temperature_colour(temperature), "circle"), row=1, col=1)
    for place, name in enumerate(controls["rule"].unique()):
        part = controls[controls["rule"] == name]
        style = place % len(CONTROL_COLOURS)
        figure.add_trace(_points(part, name, CONTROL_COLOURS[style], CONTROL_SYMBOLS[style]), row=2, col=1)
    figure.update_xaxes(type="log", dtick=1)
    figure.update_xaxes(title="draws expected of a token", row=len(panels), col=1)
    figure.update_yaxes(type="log", title="seen ÷ expected")
    figure.update_yaxes(tickvals=[0.1, 0.25, 0.5, 1, 2, 4], row=1, col=1)
    if len(controls):
        figure.update_yaxes(dtick=1, tickformat=",~r", row=2, col=1)
    title, subtitle = for_phone(_finding(ours, controls), f"{draws:,.0f} draws each. Grey: exact binomial 95% band.")
    footer = FOOTER_ROOM + LEGEND_ROWS
    return dress(figure, title=title, subtitle=subtitle, plot_height=total, header=HEADER, footer=footer)


def inside_band(cells: pd.DataFrame) -> pd.Series:
    """Whether each count lies in the central 95% of its binomial; draws are summed by rule and setting."""
    draws = cells.groupby(list(COLUMNS[:4]))["expected"].transform("sum").round()
    share = cells["expected"] / draws
    low, high = binom.ppf(0.025, draws, share), binom.ppf(0.975, draws, share)
    return (cells["seen"] >= low) & (cells["seen"] <= high)


def _points(part: pd.DataFrame, name: str, colour: str, symbol: str) -> go.Scatter:
    seen = part["seen"].clip(lower=NONE_SEEN)
    return go.Scatter(
        x=part["expected"].tolist(),
        y=(seen / part["expected"]).tolist(),
        mode="markers",
        name=name,
        marker={"color": colour, "size": 6, "symbol": symbol, "opacity": 0.75},
        customdata=part["seen"].tolist(),
        hovertemplate=f"expected %{{x:.1f}}, seen %{{customdata:.0f}}<extra>{name}</extra>",
    )


def _add_band(figure: go.Figure, row: int, draws: float, least: float) -> None:
    expected = np.geomspace(least, 0.999 * draws, 200)
    low, high = (binom.ppf(q, round(draws), expected / draws).clip(NONE_SEEN) / expected for q in (0.025, 0.975))
    figure.add_scatter(
        x=[*expected, *expected[::-1]],
        y=[*high, *low[::-1]],
        fill="toself",
        fillcolor=BAND,
        line={"width": 0},
        hoverinfo="skip",
        showlegend=False,
        row=row,
        col=1,
    )
    figure.add_hline(y=1, line={"color": INK, "width": 1}, row=row, col=1)


def _finding(ours: pd.DataFrame, controls: pd.DataFrame) -> str:
    found = f"First tokens as the law says: {inside_band(ours).mean():.0%} of {len(ours)} counts in their band"
    return f"{found}; of the controls' {inside_band(controls).mean():.0%}" if len(controls) else found
