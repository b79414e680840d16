"""Acceptance against the entropy of the target's distribution: one line for each temperature, and one for all."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ddtree.workbook.plots.frames import at, require, temperatures
from ddtree.workbook.plots.panels import PANEL_GAP, dress_panels
from ddtree.workbook.plots.sweep.common import bars, capital, resampled, sentence_on
from ddtree.workbook.plots.theme import INK, temperature_colour
from ddtree.workbook.sweep.entropy import ALL, BeyondEntropy

PANEL = 210  # pixels
PANELS = {"offered": "chance of a first draft", "accepted": "accepted drafts"}


def draw_entropy(bins: pd.DataFrame, beyond: BeyondEntropy | None, slice_name: str, label: str) -> go.Figure:
    """Mean offered mass (chance that a first draft is accepted) and mean accepted drafts by entropy, with intervals.

    Reads what `entropy_bins` and `beyond_entropy` return for one slice and label. Raises ValueError for a missing
    column or an empty frame.
    """
    measured = [f"{name}{end}" for name in PANELS for end in ("", "_lo", "_hi")]
    require(bins, "bins", ["temperature", "entropy", *measured, "rounds", "prompts"])
    heights = [PANEL] * len(PANELS)
    gap = PANEL_GAP / (sum(heights) + PANEL_GAP)
    figure = make_subplots(rows=len(PANELS), cols=1, shared_xaxes=True, vertical_spacing=gap)
    for row, (name, title) in enumerate(PANELS.items(), start=1):
        for temperature in temperatures(bins):
            part = bins[bins["temperature"] == temperature].sort_values("entropy")
            figure.add_trace(_line(part, name, title, temperature, first=row == 1), row=row, col=1)
        figure.update_yaxes(title=title, row=row, col=1, rangemode="tozero")
    figure.update_yaxes(tickformat=".0%", range=[0, 1.05], row=1, col=1)
    figure.update_xaxes(title="target's entropy at the root (nats)", row=len(PANELS), col=1)
    bar = f"Bars: {resampled(bins['prompts'])}.{sentence_on(slice_name)}"
    marks = f"{capital(label)}; greedy rounds stand at 0. {bar}"
    if beyond is None:
        title = "Acceptance falls with entropy" if _falls(bins) else "No clear fall of acceptance with entropy"
        return dress_panels(
            figure, title, f"Fewer than two sampled temperatures: none to compare. {marks}", heights, legend=True
        )
    return dress_panels(figure, beyond.verdict, marks, heights, legend=True)


def _line(part: pd.DataFrame, name: str, title: str, temperature: float, *, first: bool) -> go.Scatter:
    together = temperature == ALL
    colour = INK if together else temperature_colour(temperature)
    legend = "all sampled" if together else at(temperature)
    return go.Scatter(
        x=part["entropy"].tolist(),
        y=part[name].tolist(),
        mode="lines+markers",
        name=legend,
        legendgroup=legend,
        showlegend=first,
        line={"color": colour, "width": 3 if together else 1.2, "dash": "dot" if together else "solid"},
        marker={"color": colour, "size": 5 if together else 8},
        error_y=bars(part, name, colour),
        customdata=part[[f"{name}_lo", f"{name}_hi", "rounds", "prompts"]].to_numpy().tolist(),
        hovertemplate=f"entropy %{{x:.2f}}: {title} %{{y:.2f}}<br>95% interval %{{customdata[0]:.2f}} to "
        f"%{{customdata[1]:.2f}}<br>%{{customdata[2]:.0f}} rounds, %{{customdata[3]:.0f}} prompts"
        f"<extra>{legend}</extra>",
    )


def _falls(bins: pd.DataFrame) -> bool:
    """Whether the offered mass of the highest bin of all sampled rounds lies clearly under that of the lowest."""
    together = bins[bins["temperature"] == ALL].sort_values("entropy")
    known = len(together) > 1 and together["prompts"].max() > 1
    return known and bool(together["offered_hi"].iloc[-1] < together["offered_lo"].iloc[0])
