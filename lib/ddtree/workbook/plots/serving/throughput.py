"""Tokens a second of every server at one batch: a panel for each step cost, a line for each server."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from ddtree.workbook.plots.frames import at, first_and_last, require, temperatures
from ddtree.workbook.plots.serving.common import (
    best_at,
    cost_panels,
    dress_cost_panels,
    interval_over,
    looks,
    on_panels,
    places_apart,
)
from ddtree.workbook.plots.speed.common import bars_of
from ddtree.workbook.plots.theme import temperature_colour
from ddtree.workbook.serving.findings import cost_names, label

ROW = 34  # pixels of a server
APART = 0.5  # of a row, over which the temperatures stand


def draw_throughput(rates: pd.DataFrame, steps: pd.DataFrame, batch: int) -> go.Figure:
    """Tokens a second with 95 % intervals at `batch`, coloured by temperature; emulated costs are named as such.

    Reads `rates` and `steps` of a Serving. Raises ValueError for a missing column or no rows at that batch.
    """
    require(rates, "rates", ["extra_layers", "temperature", "batch", "name", "tokens_per_s", "units"])
    here = rates[rates["batch"] == batch]
    require(here, f"rates at batch {batch}", ["tokens_per_s"])
    names = cost_names(steps, here["extra_layers"], short=True)
    servers, values = looks(here), temperatures(here)
    heights = [ROW * len(servers) + 12] * len(names)
    figure = cost_panels(list(names.values()), heights)
    rows = {look.name: number for number, look in enumerate(servers)}
    for row, layers in enumerate(names, start=1):
        for number, temperature in enumerate(values):
            part = here[(here["extra_layers"] == layers) & (here["temperature"] == temperature)]
            shift = places_apart(number, len(values), APART)
            figure.add_scatter(
                x=part["tokens_per_s"].tolist(),
                y=[rows[name] + shift for name in part["name"]],
                mode="markers",
                name=at(temperature),
                legendgroup=at(temperature),
                showlegend=row == 1,
                marker={"color": temperature_colour(temperature), "size": 9},
                error_x=bars_of(part, "tokens_per_s", temperature_colour(temperature)),
                text=[label(name) for name in part["name"]],
                customdata=part[["tokens_per_s_lo", "tokens_per_s_hi", "over_plain"]].to_numpy().tolist(),
                hovertemplate="%{text}: %{x:,.0f} tokens/s (%{customdata[0]:,.0f} to %{customdata[1]:,.0f})<br>"
                f"%{{customdata[2]:.2f}} times plain<extra>{at(temperature)}</extra>",
                row=row,
                col=1,
            )
    texts = {"tickvals": list(range(len(servers))), "ticktext": [look.label for look in servers]}
    figure.update_yaxes(range=[len(servers) - 0.5, -0.5], **texts)
    figure.update_xaxes(rangemode="tozero", nticks=6, separatethousands=True)
    figure.update_xaxes(title=f"tokens/s, batch {batch}", row=len(names), col=1)
    title, costliest = _finding(here, batch, list(names))
    bars = f"Bars: {interval_over(batch, here['units'])}."
    subtitle = f"{costliest}Whole replies, prefill included. {bars}{on_panels(names)}"
    return dress_cost_panels(figure, title, subtitle, heights)


def _finding(here: pd.DataFrame, batch: int, costs: list[int]) -> tuple[str, str]:
    """Who is fastest at the first and last temperature: at the least cost, and in a sentence at the largest."""

    def fastest(layers: int) -> str:
        at_cost = here[here["extra_layers"] == layers]
        found = [(t, best_at(at_cost, "tokens_per_s", t)) for t in first_and_last(temperatures(at_cost))]
        return ", ".join(f"{label(best['name'])} ({best['tokens_per_s']:,.0f}/s) at {at(t)}" for t, best in found)

    emulated = f", emulated cost (+{costs[0]} layers)" if costs[0] else ""
    title = f"Fastest, batch {batch}{emulated}: {fastest(costs[0])}"
    if len(costs) == 1:
        return title, ""
    return title, f"Fastest at the largest emulated cost: {fastest(costs[-1])}. "
