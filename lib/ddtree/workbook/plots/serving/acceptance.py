"""Tokens a round of every drafting server against temperature, and how many tokens its rounds gave."""

from __future__ import annotations

import math

import pandas as pd
import plotly.graph_objects as go

from ddtree.workbook.plots.frames import at, first_and_last, require, temperatures
from ddtree.workbook.plots.panels import dress_panels
from ddtree.workbook.plots.serving.common import best_at, looks
from ddtree.workbook.plots.speed.common import bars_of, panels
from ddtree.workbook.plots.theme import dress, for_phone
from ddtree.workbook.serving.findings import label
from ddtree.workbook.serving.rates import DDTREE, DFLASH

HEIGHT = 150  # pixels of a panel


def draw_served_acceptance(rounds: pd.DataFrame) -> go.Figure:
    """Mean tokens a round at batch 1 with 95 % intervals over prompts, a line for each server, at the least step cost.

    Reads `rounds` of a Serving. Raises ValueError for a missing column or no rows.
    """
    require(rounds, "rounds", ["extra_layers", "temperature", "name", "acceptance", "acceptance_lo", "acceptance_hi"])
    least = rounds["extra_layers"].min()
    here = rounds[rounds["extra_layers"] == least]
    figure = go.Figure()
    for look in looks(here):
        part = here[here["name"] == look.name].sort_values("temperature")
        figure.add_scatter(
            x=part["temperature"].tolist(),
            y=part["acceptance"].tolist(),
            mode="lines+markers",
            name=look.label,
            line={"color": look.colour, "width": 1.5},
            marker={"color": look.colour, "size": 9, "symbol": look.symbol},
            error_y=bars_of(part, "acceptance", look.colour),
            customdata=part[["acceptance_lo", "acceptance_hi"]].to_numpy().tolist(),
            hovertemplate="T = %{x:g}: %{y:.2f} tokens a round (%{customdata[0]:.2f} to %{customdata[1]:.2f})"
            f"<extra>{look.label}</extra>",
        )
    figure.update_xaxes(title="temperature", tickvals=temperatures(here))
    figure.update_yaxes(title="tokens a round", range=[0, 1.08 * float(here["acceptance_hi"].max())])
    added = f" Model with {least} identity layers (emulated cost)." if least else ""
    subtitle = f"Accepted drafts and the final token, batch 1. Bars: 95% interval over prompts.{added}"
    title, subtitle = for_phone(_finding(here), subtitle)
    return dress(figure, title=title, subtitle=subtitle, plot_height=300)


def draw_served_histogram(histograms: pd.DataFrame) -> go.Figure:
    """Share of rounds by the tokens they gave, at batch 1 and the least step cost, a panel for each temperature.

    Reads `histograms` of a Serving (counts: tokens to rounds). Raises ValueError for a missing column or no rows.
    """
    require(histograms, "histograms", ["extra_layers", "temperature", "name", "method", "budget", "counts"])
    here = histograms[histograms["extra_layers"] == histograms["extra_layers"].min()]
    counted = {
        (row["temperature"], row["name"]): {int(tokens): int(n) for tokens, n in row["counts"].items()}
        for row in here.to_dict("records")
    }
    tokens = list(range(1, max(max(counts, default=1) for counts in counted.values()) + 1))
    values = temperatures(here)
    heights = [HEIGHT] * len(values)
    figure = panels([at(value) for value in values], heights)
    for row, temperature in enumerate(values, start=1):
        for look in looks(here):
            counts = counted.get((temperature, look.name), {})
            total = sum(counts.values())
            if not total:
                continue
            figure.add_bar(
                x=tokens,
                y=[counts.get(number, 0) / total for number in tokens],
                name=look.label,
                legendgroup=look.name,
                showlegend=row == 1,
                marker={"color": look.colour},
                customdata=[[counts.get(number, 0), total] for number in tokens],
                hovertemplate="%{x} tokens: %{y:.1%} (%{customdata[0]} of %{customdata[1]} rounds)"
                f"<extra>{look.label}, {at(temperature)}</extra>",
                row=row,
                col=1,
            )
    figure.update_yaxes(title="rounds", tickformat=".0%", nticks=5, rangemode="tozero")
    figure.update_xaxes(dtick=math.ceil(len(tokens) / 8), tick0=1)
    figure.update_xaxes(title="tokens of a round", row=len(values), col=1)
    subtitle = "Share of rounds by tokens given: accepted drafts and the final token."
    return dress_panels(figure, _tail(counted, values, looks(here)[-1].name), subtitle, heights, legend=True)


def _finding(here: pd.DataFrame) -> str:
    """The best DDTREE and DFLASH at the first and last temperature."""
    said = []
    for temperature in first_and_last(temperatures(here)):
        parts = []
        for method in (DDTREE, DFLASH):
            rows = here[(here["method"] == method) & (here["temperature"] == temperature)]
            if len(rows):
                best = best_at(rows, "acceptance", temperature)
                parts.append(f"{label(best['name'])} {best['acceptance']:.2f}")
        said.append(f"{', '.join(parts)} at {at(temperature)}")
    return f"Tokens a round: {'; '.join(said)}"


def _tail(counted: dict[tuple[float, str], dict[int, int]], values: list[float], name: str) -> str:
    """In how many rounds the last server accepted nothing, at the first and last temperature."""
    said = []
    for temperature in first_and_last(values):
        counts = counted.get((temperature, name), {})
        if counts:
            said.append(f"{counts.get(1, 0) / sum(counts.values()):.0%} at {at(temperature)}")
    return f"{label(name)}: rounds that accepted no draft, {', '.join(said)}"
