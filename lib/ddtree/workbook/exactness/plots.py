"""Draws counts of first tokens against those expected: the verify inside its band, the negative controls outside."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from scipy.stats import binom

from ddtree.workbook.exactness.distributions import TARGET_ONLY
from ddtree.workbook.theme import (
    FOOTER_ROOM,
    INK,
    SYMBOLS,
    add_series,
    apply_layout,
    require,
    stacked_panels,
    temperature_colour,
    temperature_label,
    temperatures,
)

COLUMNS = ("rule", "temperature", "filter", "tree", "expected", "seen")
CONTROL_COLOURS = ("#CC6677", "#AA4499", "#44AA99", "#999933", "#8877DD", "#661100")  # none of a temperature
PANEL, LEGEND_ROWS = 230, 84  # pixels: of a panel; of the legend's rows beyond the first
BAND = "rgba(128, 128, 128, 0.25)"
NONE_SEEN = 0.5  # a count of 0, on a logarithmic axis


def draw_goodness_of_fit(cells: pd.DataFrame) -> go.Figure:
    """Seen over expected against expected, log-log, with the exact binomial 95% band; controls in a panel below.

    Reads rule, temperature, filter, tree, expected and seen, one row a cell. Of the rule in use, the unfiltered
    settings of the controls' tree are drawn (of every tree where there are no controls). A cell without a count is
    drawn at half a count. Raises ValueError for a missing column or an empty frame.
    """
    require(cells, "cells", COLUMNS)
    controls = cells[cells["rule"] != TARGET_ONLY.name]
    ours = cells[(cells["rule"] == TARGET_ONLY.name) & (cells["filter"] == "none")]
    if len(controls):
        ours = ours[ours["tree"].isin(controls["tree"])]
    require(ours, "cells of the rule in use, unfiltered,", COLUMNS)
    panels = ["the verify in use", "negative controls"][: 2 if len(controls) else 1]
    heights = [PANEL] * len(panels)
    figure = stacked_panels(panels, heights)
    draws = ours.groupby(["temperature", "tree"])["expected"].sum().max()
    for row in range(1, len(panels) + 1):
        _add_band(figure, row, draws, cells["expected"].min())
    for temperature in temperatures(ours):
        part = ours[ours["temperature"] == temperature]
        _add_points(figure, part, temperature_label(temperature), temperature_colour(temperature), "circle", row=1)
    for place, (name, part) in enumerate(controls.groupby("rule", sort=False)):
        style = place % len(CONTROL_COLOURS)
        _add_points(figure, part, str(name), CONTROL_COLOURS[style], SYMBOLS[style], row=2)
    figure.update_xaxes(type="log", dtick=1)
    figure.update_xaxes(title="draws expected of a token", row=len(panels), col=1)
    figure.update_yaxes(type="log", title="seen ÷ expected")
    figure.update_yaxes(tickvals=[0.1, 0.25, 0.5, 1, 2, 4], row=1, col=1)
    title = f"First tokens as expected: {inside_band(ours).mean():.0%} of {len(ours)} counts in their band"
    if len(controls):
        figure.update_yaxes(dtick=1, tickformat=",~r", row=2, col=1)
        title += f"; of the controls' {inside_band(controls).mean():.0%}"
    subtitle = f"{draws:,.0f} draws each. Grey: exact binomial 95% band."
    return apply_layout(figure, title, subtitle, heights, footer=FOOTER_ROOM + LEGEND_ROWS)


def inside_band(cells: pd.DataFrame) -> pd.Series:
    """Whether each count lies in the central 95% of its binomial; draws are summed by rule and setting."""
    draws = cells.groupby(list(COLUMNS[:4]))["expected"].transform("sum").round()
    share = cells["expected"] / draws
    low, high = binom.ppf(0.025, draws, share), binom.ppf(0.975, draws, share)
    return (cells["seen"] >= low) & (cells["seen"] <= high)


def _add_points(figure: go.Figure, part: pd.DataFrame, name: str, colour: str, symbol: str, *, row: int) -> None:
    ratio = part["seen"].clip(lower=NONE_SEEN) / part["expected"]
    marker, hover = {"size": 6, "symbol": symbol, "opacity": 0.75}, "expected {x:.1f}, seen {seen:.0f}"
    series = {"name": name, "colour": colour, "mode": "markers", "hover": hover}
    add_series(figure, part, "expected", ratio, row=row, marker=marker, **series)


def _add_band(figure: go.Figure, row: int, draws: float, least: float) -> None:
    expected = np.geomspace(least, 0.999 * draws, 200)
    low, high = (binom.ppf(q, round(draws), expected / draws).clip(NONE_SEEN) / expected for q in (0.025, 0.975))
    outline = {"x": [*expected, *expected[::-1]], "y": [*high, *low[::-1]]}
    fill = {"fill": "toself", "fillcolor": BAND, "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    figure.add_scatter(**outline, **fill, row=row, col=1)
    figure.add_hline(y=1, line={"color": INK, "width": 1}, row=row, col=1)
