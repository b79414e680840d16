"""Small multiples for every width of page: one panel above the other for each temperature, on one x axis."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ddtree.workbook.plots.frames import at, lines, temperatures
from ddtree.workbook.plots.theme import FOOTER_ROOM, HEADER_ROOM, dress, for_phone

ROW, PANEL_GAP = 34, 46  # pixels: one line of a panel, and between panels
HEADER, BARE_FOOTER = HEADER_ROOM + 18, 60  # pixels: titles and a panel's heading; tick labels and axis title


def label_panels(frame: pd.DataFrame) -> tuple[go.Figure, list[int]]:
    """One panel above the other for each temperature, its lines sharing an x axis; and the panels' heights in pixels.

    A line of a panel is a label of `frame`, the first on top.
    """
    values = temperatures(frame)
    names = [line.label for line in lines(frame)]
    present = [[name for name in names if name in set(frame.loc[frame["temperature"] == t, "label"])] for t in values]
    heights = [ROW * len(labels) + 12 for labels in present]
    figure = stacked_panels(values, heights)
    for row, labels in enumerate(present, start=1):
        figure.update_yaxes(
            categoryorder="array", categoryarray=labels, range=[len(labels) - 0.5, -0.5], row=row, col=1
        )
    return figure, heights


def stacked_panels(values: list[float], heights: list[int]) -> go.Figure:
    """Panels of the given pixel heights with one x axis, headed by their temperature at the left."""
    total = sum(heights) + PANEL_GAP * (len(heights) - 1)
    figure = make_subplots(
        rows=len(values),
        cols=1,
        shared_xaxes=True,
        row_heights=heights,
        vertical_spacing=PANEL_GAP / total,
        subplot_titles=[at(value) for value in values],
    )
    return figure.update_annotations(x=0, xanchor="left", font={"size": 13})


def dress_panels(figure: go.Figure, title: str, subtitle: str, heights: list[int], *, legend: bool) -> go.Figure:
    """`dress` for panels: titles broken for a phone, a panel's heading, and no room for a legend without one."""
    total = sum(heights) + PANEL_GAP * (len(heights) - 1)
    footer = FOOTER_ROOM if legend else BARE_FOOTER
    title, subtitle = for_phone(title, subtitle)
    return dress(figure, title=title, subtitle=subtitle, plot_height=total, header=HEADER, footer=footer)
