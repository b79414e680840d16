"""Cases side by side at every size, floors as ticks: the form that figures of the verify and its attention share."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pandas as pd
import plotly.graph_objects as go

from ddtree.workbook.plots.speed.common import EVERY_LINE, bars_of, panels
from ddtree.workbook.plots.theme import INK

ROW = 26  # pixels of a size


def draw_cases(
    frame: pd.DataFrame, case: str, panel: str, colours: Mapping[str, str], peers: Collection[str], floor: str
) -> tuple[go.Figure, list[int]]:
    """Microseconds of each case, a panel for each value of column `panel`; and the panels' heights in pixels.

    Reads the columns `case`, `panel` and size, us and over_ours with their intervals, and floor_us. `colours` orders
    the cases; `peers` are diamonds; `floor` says what a floor is.
    """
    headings, sizes = list(dict.fromkeys(frame[panel])), list(dict.fromkeys(frame["size"]))
    heights = [ROW * len(sizes) + 20] * len(headings)
    figure = panels(headings, heights)
    for row, heading in enumerate(headings, start=1):
        here = frame[frame[panel] == heading]
        for name in [name for name in colours if name in set(here[case])]:
            part = here[here[case] == name]
            figure.add_scatter(
                x=part["us"].tolist(),
                y=part["size"].tolist(),
                mode="markers",
                name=name,
                legendgroup=name,
                showlegend=row == 1,
                marker={"color": colours[name], "size": 9, "symbol": "diamond" if name in peers else "circle"},
                error_x=bars_of(part, "us", colours[name]),
                customdata=part[["us_lo", "us_hi", "over_ours", "over_ours_lo", "over_ours_hi"]].to_numpy().tolist(),
                hovertemplate="%{x:.1f} µs (%{customdata[0]:.1f} to %{customdata[1]:.1f})<br>%{customdata[2]:.2f} "
                f"times ours (%{{customdata[3]:.2f}} to %{{customdata[4]:.2f}})<extra>{name}</extra>",
                row=row,
                col=1,
            )
        floors = here.drop_duplicates("size")
        figure.add_scatter(
            x=floors["floor_us"].tolist(),
            y=floors["size"].tolist(),
            mode="markers",
            name="floor",
            legendgroup="floor",
            showlegend=row == 1,
            marker={"color": INK, "symbol": "line-ns-open", "size": 12},
            hovertemplate=f"{floor}: %{{x:.2f}} µs<extra>floor</extra>",
            row=row,
            col=1,
        )
    figure.update_yaxes(categoryorder="array", categoryarray=sizes, range=[len(sizes) - 0.5, -0.5], **EVERY_LINE)
    figure.update_xaxes(type="log", exponentformat="none", nticks=6)
    figure.update_xaxes(title="µs", row=len(headings), col=1)
    return figure, heights
