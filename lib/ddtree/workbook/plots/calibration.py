"""The drafter's reliability: how often a node it gave probability x was accepted, by depth and temperature."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from ddtree.workbook.live.calibration import DEEPEST
from ddtree.workbook.plots.frames import at, first_and_last, require, temperatures
from ddtree.workbook.plots.panels import dress_panels, stacked_panels
from ddtree.workbook.plots.theme import INK

DEPTH_COLOURS = ("#4477AA", "#CCBB44", "#AA3377")  # none of a temperature
DEPTH_SYMBOLS = ("circle", "diamond", "square")
PANEL = 190  # pixels
COLUMNS = ("temperature", "depth", "draft", "n", "accepted", "share", "share_lo", "share_hi")


def draw_reliability(table: pd.DataFrame) -> go.Figure:
    """Share accepted against mean draft probability with Wilson 95% intervals, one panel for each temperature.

    Reads what `calibration.reliability` returns. On the diagonal the drafter's probability is the acceptance; above it
    the drafter is too modest. Raises ValueError for a missing column or an empty frame.
    """
    require(table, "table", COLUMNS)
    values = temperatures(table)
    heights = [PANEL] * len(values)
    figure = stacked_panels(values, heights)
    depths = sorted(int(depth) for depth in table["depth"].unique())
    shown: set[int] = set()
    for row, temperature in enumerate(values, start=1):
        diagonal = go.Scatter(
            x=[0, 1], y=[0, 1], mode="lines", line={"color": INK, "dash": "dot"}, hoverinfo="skip", showlegend=False
        )
        figure.add_trace(diagonal, row=row, col=1)
        for depth in depths:
            part = table[(table["temperature"] == temperature) & (table["depth"] == depth)].sort_values("draft")
            if len(part):
                figure.add_trace(_points(part, depth, first=depth not in shown), row=row, col=1)
                shown.add(depth)
    figure.update_xaxes(range=[0, 1.02])
    figure.update_xaxes(title="probability given by the drafter", row=len(values), col=1)
    figure.update_yaxes(range=[-0.02, 1.05], tickformat=".0%", title="accepted")
    subtitle = "Nodes whose parent was accepted. Dotted: perfect calibration. Bars: Wilson 95% interval."
    return dress_panels(figure, _finding(table), subtitle, heights, legend=True)


def _points(part: pd.DataFrame, depth: int, *, first: bool) -> go.Scatter:
    style = (depth - 1) % len(DEPTH_COLOURS)
    name = f"depth {depth} and deeper" if depth == DEEPEST else f"depth {depth}"
    return go.Scatter(
        x=part["draft"].tolist(),
        y=part["share"].tolist(),
        mode="lines+markers",
        name=name,
        legendgroup=name,
        showlegend=first,
        line={"color": DEPTH_COLOURS[style], "width": 1},
        marker={"color": DEPTH_COLOURS[style], "size": 8, "symbol": DEPTH_SYMBOLS[style]},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": (part["share_hi"] - part["share"]).tolist(),
            "arrayminus": (part["share"] - part["share_lo"]).tolist(),
            "thickness": 1.2,
            "width": 4,
        },
        customdata=part[["accepted", "n", "share_lo", "share_hi"]].to_numpy().tolist(),
        hovertemplate="draft probability %{x:.2f}: %{y:.0%} accepted (%{customdata[0]:.0f} of %{customdata[1]:.0f})"
        f"<br>95% interval %{{customdata[2]:.0%}} to %{{customdata[3]:.0%}}<extra>{name}</extra>",
    )


def _finding(table: pd.DataFrame) -> str:
    found = []
    for temperature in first_and_last(temperatures(table)):
        part = table[table["temperature"] == temperature]
        said = (part["draft"] * part["n"]).sum() / part["n"].sum()
        met = part["accepted"].sum() / part["n"].sum()
        found.append(f"{said:.0%} said, {met:.0%} met at {at(temperature)}")
    return f"Drafter's probabilities: {'; '.join(found)}"
