"""Where the time of a round goes: a plain step, and what speculation adds to it, for each server and temperature."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from ddtree.workbook.plots.frames import at, require
from ddtree.workbook.plots.serving.common import cost_panels, dress_cost_panels, looks, on_panels, span
from ddtree.workbook.plots.speed.common import EVERY_LINE
from ddtree.workbook.plots.theme import GREY, INK, TIMES, VERMILION
from ddtree.workbook.serving.findings import cost_names

ROW = 24  # pixels of a bar
STEP, ADDED = "a plain step", "what speculation adds"


def draw_served_rounds(rounds: pd.DataFrame, steps: pd.DataFrame) -> go.Figure:
    """Milliseconds of a round at batch 1, stacked, a panel for each step cost; beside each bar its speed-up over plain.

    The speed-up is tokens a round times a plain step over a round, prefill left out. Reads `rounds` and `steps` of a
    Serving. Raises ValueError for a missing column or no rows.
    """
    require(rounds, "rounds", ["extra_layers", "temperature", "name", "step_ms", "round_ms", "added_ms", "acceptance"])
    names = cost_names(steps, rounds["extra_layers"], short=True)
    order = {look.name: (place, look.label) for place, look in enumerate(looks(rounds))}
    shown = rounds.assign(
        place=[order[name][0] for name in rounds["name"]],
        bar=[f"{order[r['name']][1]}, {at(r['temperature'])}" for r in rounds.to_dict("records")],
    ).sort_values(["place", "temperature"])
    bars = list(dict.fromkeys(shown["bar"]))
    heights = [ROW * len(bars) + 10] * len(names)
    figure = cost_panels(list(names.values()), heights)
    for row, layers in enumerate(names, start=1):
        _add_panel(figure, shown[shown["extra_layers"] == layers], row)
        figure.update_xaxes(
            range=[0, 1.3 * float(shown.loc[shown["extra_layers"] == layers, "round_ms"].max())], row=row
        )
    figure.update_layout(barmode="stack")
    figure.update_yaxes(categoryorder="array", categoryarray=bars, range=[len(bars) - 0.5, -0.5], **EVERY_LINE)
    figure.update_xaxes(title="ms of a round, batch 1", row=len(names), col=1)
    subtitle = f"Beside each bar: tokens a round, then how many times plain's speed they make.{on_panels(names)}"
    title = _finding(shown, cost_names(steps, rounds["extra_layers"]))
    return dress_cost_panels(figure, title, subtitle, heights)


def _add_panel(figure: go.Figure, part: pd.DataFrame, row: int) -> None:
    rows = part.to_dict("records")
    details = [[r["round_ms"], r["round_ms_lo"], r["round_ms_hi"], r["acceptance"]] for r in rows]
    lengths = {
        STEP: (part[["step_ms", "round_ms"]].min(axis=1), GREY),
        ADDED: (part["added_ms"].clip(lower=0), VERMILION),
    }
    for name, (length, colour) in lengths.items():
        figure.add_bar(
            x=length.tolist(),
            y=part["bar"].tolist(),
            orientation="h",
            name=name,
            legendgroup=name,
            showlegend=row == 1,
            marker={"color": colour},
            customdata=details,
            hovertemplate="%{y}: %{x:.2f} ms of a round of %{customdata[0]:.2f} (%{customdata[1]:.2f} to "
            f"%{{customdata[2]:.2f}}), %{{customdata[3]:.2f}} tokens<extra>{name}</extra>",
            row=row,
            col=1,
        )
    figure.add_scatter(
        x=part["round_ms"].tolist(),
        y=part["bar"].tolist(),
        mode="text",
        text=[f" {r['acceptance']:.1f}, {r['decode_over_plain']:.2f}{TIMES}" for r in rows],
        textposition="middle right",
        textfont={"color": INK, "size": 11},
        showlegend=False,
        cliponaxis=False,
        hoverinfo="skip",
        row=row,
        col=1,
    )


def _finding(shown: pd.DataFrame, names: dict[int, str]) -> str:
    """What speculation adds to a plain step at the least and the largest cost."""
    said = []
    for layers in dict.fromkeys((min(names), max(names))):
        added = shown.loc[shown["extra_layers"] == layers, "added_ms"]
        said.append(f"{span(added.min(), added.max(), '{:.1f}')} ms at {names[layers]}")
    return f"Speculation adds {'; '.join(said)}"
