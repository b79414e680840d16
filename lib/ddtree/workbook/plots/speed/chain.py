"""Tokens per second of whole calls, ours beside `dflash_generate`, a panel for each model."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from ddtree.workbook.plots.frames import at, require
from ddtree.workbook.plots.panels import dress_panels
from ddtree.workbook.plots.speed.common import bars_of, panels, times
from ddtree.workbook.plots.theme import STRATEGY_COLOURS, TIMES, VERMILION

HEIGHT = 190  # pixels of a panel
COLOURS = {**STRATEGY_COLOURS, "dflash_generate": VERMILION}


def draw_chain(chain: pd.DataFrame) -> go.Figure:
    """Tokens per second of each method with 95 % intervals, side by side at each temperature.

    Reads model, temperature, method, tokens_per_s with its interval, and over_peer. Raises ValueError for a missing
    column or no rows.
    """
    require(chain, "chain", ["model", "temperature", "method", "tokens_per_s", "tokens_per_s_lo", "tokens_per_s_hi"])
    models = list(dict.fromkeys(chain["model"]))
    heights = [HEIGHT] * len(models)
    figure = panels(models, heights)
    for row, model in enumerate(models, start=1):
        here = chain[chain["model"] == model]
        for method in [name for name in COLOURS if name in set(here["method"])]:
            part = here[here["method"] == method]
            colour = COLOURS[method]
            figure.add_bar(
                x=[at(temperature) for temperature in part["temperature"]],
                y=part["tokens_per_s"].tolist(),
                name=method,
                legendgroup=method,
                showlegend=row == 1,
                marker={"color": colour},
                error_y=bars_of(part, "tokens_per_s", "#4D4D4D"),
                customdata=part[["tokens_per_s_lo", "tokens_per_s_hi", "tokens"]].to_numpy().tolist(),
                hovertemplate="%{y:.1f} tokens/s (%{customdata[0]:.1f} to %{customdata[1]:.1f}), "
                f"%{{customdata[2]}} tokens<extra>{method}</extra>",
                row=row,
                col=1,
            )
    figure.update_yaxes(title="tokens/s", nticks=5, rangemode="tozero")
    figure.update_xaxes(type="category")
    subtitle = "Whole calls, prefill included, on the same prompts. Bars: 95% interval over prompts."
    return dress_panels(figure, _finding(chain), subtitle, heights, legend=True)


def _finding(chain: pd.DataFrame) -> str:
    trees = chain[chain["method"] == "tree"]
    rated = trees[trees["over_peer"].notna()] if "over_peer" in trees else trees.iloc[:0]
    if rated.empty:
        return "Tokens per second of whole calls"
    low, high = rated["over_peer"].min(), rated["over_peer"].max()
    span = times(low) if len(rated) == 1 else f"{times(low)} to {times(high)}"
    return f"Tree over dflash_generate: {span}{TIMES} its tokens/s"
