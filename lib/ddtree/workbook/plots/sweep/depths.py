"""How deep drafts are accepted, against temperature: a line for each depth."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from ddtree.workbook.plots.frames import at, first_and_last, require, temperatures
from ddtree.workbook.plots.sweep.common import bars, capital, resampled, sentence_on
from ddtree.workbook.plots.theme import dress, for_phone

SHALLOW, DEEP = 0.85, 0.25  # of the scale, where the colours read on white and on black


def draw_depths(depths: pd.DataFrame, slice_name: str, label: str) -> go.Figure:
    """Share of rounds that accepted at least d drafts against temperature, with 95 % intervals, a line for each d.

    Reads what `accepted_depths` returns; slice and label are for the titles. Raises ValueError for a missing column or
    an empty frame.
    """
    require(depths, "depths", ["temperature", "depth", "share", "share_lo", "share_hi", "rounds", "prompts"])
    deepest = int(depths["depth"].max())
    figure = go.Figure()
    for d in range(1, deepest + 1):
        part = depths[depths["depth"] == d].sort_values("temperature")
        place = SHALLOW + (DEEP - SHALLOW) * (d - 1) / max(1, deepest - 1)
        colour = sample_colorscale("Viridis", [place])[0]
        figure.add_scatter(
            x=part["temperature"].tolist(),
            y=part["share"].tolist(),
            mode="lines+markers",
            name=f"d = {d}",
            line={"color": colour, "width": 2},
            marker={"color": colour, "size": 8},
            error_y=bars(part, "share", colour),
            customdata=part[["share_lo", "share_hi", "rounds", "prompts"]].to_numpy().tolist(),
            hovertemplate=f"T = %{{x:g}}: {d} or more drafts in %{{y:.1%}} of rounds<br>95% interval "
            "%{customdata[0]:.1%} to %{customdata[1]:.1%}<br>%{customdata[2]:.0f} rounds, %{customdata[3]:.0f} prompts"
            f"<extra>{label}</extra>",
        )
    figure.update_xaxes(title="temperature", tickvals=temperatures(depths))
    figure.update_yaxes(title="rounds that accepted d or more", tickformat=".0%", range=[0, 1.03])
    subtitle = f"Bars: {resampled(depths['prompts'])}.{sentence_on(slice_name)}"
    title, subtitle = for_phone(_finding(depths, label), subtitle)
    return dress(figure, title=title, subtitle=subtitle, plot_height=320)


def _finding(depths: pd.DataFrame, label: str) -> str:
    """The first depth's shares at both ends, and whether their intervals are apart."""
    first = {row["temperature"]: row for row in depths[depths["depth"] == 1].to_dict("records")}
    ends = first_and_last(temperatures(depths))
    shares = ", ".join(f"{first[t]['share']:.0%} at {at(t)}" for t in ends)
    cold, hot = first[ends[0]], first[ends[-1]]
    apart = cold["share_hi"] < hot["share_lo"] or hot["share_hi"] < cold["share_lo"]
    unclear = "" if len(ends) < 2 or (apart and cold["prompts"] > 1) else " (no clear difference)"
    return f"{capital(label)}: a draft accepted in {shares}{unclear}"
