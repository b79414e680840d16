"""The budget that was chosen round by round, above it what a round of each budget was measured to cost."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ddtree.budget import RoundCost
from ddtree.workbook.plots.frames import at, first_and_last, require, temperatures
from ddtree.workbook.plots.panels import HEADER, PANEL_GAP
from ddtree.workbook.plots.theme import INK, dress, for_phone, temperature_colour

HEIGHTS = [130, 190]  # pixels: cost, choices


def draw_chosen_budgets(rounds: pd.DataFrame, cost: RoundCost) -> go.Figure:
    """Milliseconds of a round by budget, and the share of rounds that chose at most so many nodes.

    `rounds` are those of settings with the budget "auto"; reads temperature and tree_size. Raises ValueError for a
    missing column or no round.
    """
    require(rounds, "rounds", ["temperature", "tree_size"])
    figure = make_subplots(
        rows=2,
        cols=1,
        shared_xaxes=True,
        row_heights=HEIGHTS,
        vertical_spacing=PANEL_GAP / (sum(HEIGHTS) + PANEL_GAP),
        subplot_titles=["what a round costs", "what was chosen"],
    )
    figure.update_annotations(x=0, xanchor="left", font={"size": 13})
    measured = go.Scatter(
        x=list(cost.budgets),
        y=list(cost.ms),
        mode="lines+markers",
        line={"color": INK, "width": 2},
        marker={"size": 7},
        hovertemplate="budget %{x}: %{y:.1f} ms a round<extra></extra>",
        showlegend=False,
    )
    figure.add_trace(measured, row=1, col=1)
    budgets = list(range(cost.budgets[-1] + 1))
    for temperature in temperatures(rounds):
        nodes = rounds.loc[rounds["temperature"] == temperature, "tree_size"] - 1
        shares = [float((nodes <= budget).mean()) for budget in budgets]
        chosen = go.Scatter(
            x=budgets,
            y=shares,
            mode="lines",
            name=at(temperature),
            line={"color": temperature_colour(temperature), "width": 2, "shape": "hv"},
            hovertemplate="%{y:.0%} of " + str(len(nodes)) + " rounds chose %{x} nodes or fewer"
            f"<extra>{at(temperature)}</extra>",
        )
        figure.add_trace(chosen, row=2, col=1)
    figure.update_yaxes(title="ms", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(title="rounds", tickformat=".0%", range=[0, 1.03], row=2, col=1)
    figure.update_xaxes(title="nodes beside the root", row=2, col=1)
    wide = "Above: median of whole rounds at each budget. Below: rounds that chose so many nodes or fewer."
    title, subtitle = for_phone(_finding(rounds), wide)
    return dress(figure, title=title, subtitle=subtitle, plot_height=sum(HEIGHTS) + PANEL_GAP, header=HEADER)


def _finding(rounds: pd.DataFrame) -> str:
    medians = (rounds["tree_size"] - 1).groupby(rounds["temperature"]).median()
    found = [f"{medians[t]:g} nodes at {at(t)}" for t in first_and_last(sorted(medians.index))]
    return f"Budget chosen (median): {', '.join(found)}"
