"""Speed-up over plain against the cost of a plain step at one batch: a panel for each temperature."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from ddtree.workbook.plots.frames import at, require, temperatures
from ddtree.workbook.plots.panels import HEADER, PANEL_GAP
from ddtree.workbook.plots.serving.common import interval_over, looks, places_apart, span
from ddtree.workbook.plots.speed.common import bars_of, panels
from ddtree.workbook.plots.theme import FOOTER_ROOM, INK, LEGEND_DROP, TIMES, dress, for_phone
from ddtree.workbook.serving.findings import cost_name, cost_names, label
from ddtree.workbook.serving.rates import DDTREE, PLAIN

HEIGHT = 200  # pixels of a panel
SECOND_LINE = 16  # pixels of the tick labels' second line
APART = 0.04  # of the axis, over which servers of one cost stand


def draw_speedup(rates: pd.DataFrame, steps: pd.DataFrame, batch: int) -> go.Figure:
    """Tokens/s over plain's at `batch` with 95 % intervals, a line for each drafting server.

    The x axis is the plain engine's milliseconds a token at batch 1; costs that identity layers emulate are named.
    Reads `rates` and `steps` of a Serving. Raises ValueError for a missing column or no rows at that batch.
    """
    require(rates, "rates", ["extra_layers", "temperature", "batch", "name", "over_plain", "units"])
    here = rates[(rates["batch"] == batch) & (rates["name"] != PLAIN) & rates["over_plain"].notna()]
    require(here, f"rates over plain at batch {batch}", ["over_plain"])
    cost = dict(zip(steps["extra_layers"].astype(int), steps["step_ms"].astype(float), strict=True))
    largest = max(cost.values())
    values, servers = temperatures(here), looks(here)
    heights = [HEIGHT] * len(values)
    figure = panels([at(value) for value in values], heights)
    for row, temperature in enumerate(values, start=1):
        for number, look in enumerate(servers):
            part = here[(here["temperature"] == temperature) & (here["name"] == look.name)].sort_values("extra_layers")
            shift = places_apart(number, len(servers), APART * largest)
            figure.add_scatter(
                x=[cost[layers] + shift for layers in part["extra_layers"]],
                y=part["over_plain"].tolist(),
                mode="lines+markers",
                name=look.label,
                legendgroup=look.name,
                showlegend=row == 1,
                line={"color": look.colour, "width": 1.5},
                marker={"color": look.colour, "size": 9, "symbol": look.symbol},
                error_y=bars_of(part, "over_plain", look.colour),
                text=[cost_name(layers, cost[layers]) for layers in part["extra_layers"]],
                customdata=part[["over_plain_lo", "over_plain_hi", "tokens_per_s"]].to_numpy().tolist(),
                hovertemplate="%{text}<br>%{y:.2f} times plain (%{customdata[0]:.2f} to %{customdata[1]:.2f}), "
                f"%{{customdata[2]:,.0f}} tokens/s<extra>{look.label}, {at(temperature)}</extra>",
                row=row,
                col=1,
            )
        figure.add_hline(y=1, line={"color": INK, "width": 1, "dash": "dot"}, row=row, col=1)
    figure.update_yaxes(title="over plain", nticks=6, range=[0, 1.06 * float(here["over_plain_hi"].max())])
    ticks = [f"{ms:.1f}" + (f"<br>+{layers}" if layers else "") for layers, ms in cost.items()]
    figure.update_xaxes(tickvals=list(cost.values()), ticktext=ticks, tickangle=0, range=[0, 1.08 * largest])
    emulated = "; +N: emulated cost, N layers" if max(cost) > 0 else ""
    figure.update_xaxes(title=f"ms of a plain step{emulated}", row=len(values), col=1)
    intervals = f"Bars: {interval_over(batch, here['units'])}."
    subtitle = f"Ranges: over temperatures. A plain step: its ms a token at batch 1. Dotted: plain's speed. {intervals}"
    title, subtitle = for_phone(_finding(here, steps, batch), subtitle)
    return dress(
        figure,
        title=title,
        subtitle=subtitle,
        plot_height=sum(heights) + PANEL_GAP * (len(heights) - 1),
        header=HEADER,
        footer=FOOTER_ROOM + SECOND_LINE,
        legend_drop=LEGEND_DROP + SECOND_LINE,
    )


def _finding(here: pd.DataFrame, steps: pd.DataFrame, batch: int) -> str:
    """The best DDTREE at the least and the largest cost, as a range over temperatures."""
    trees = here[here["method"] == DDTREE]
    rated, who = (trees, "Best DDTREE") if len(trees) else (here, label(str(here["name"].iloc[0])))
    names = cost_names(steps, rated["extra_layers"])
    said = []
    for layers in dict.fromkeys((min(names), max(names))):
        best = rated[rated["extra_layers"] == layers].groupby("temperature")["over_plain"].max()
        said.append(f"{span(best.min(), best.max())}{TIMES} at {names[layers]}")
    return f"{who} over plain, batch {batch}: {'; '.join(said)}"
