"""What a live round is made of: milliseconds by stage, one bar for each model, batch and budget."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from ddtree.decode import FORWARDS, STAGES
from ddtree.workbook.plots.frames import require
from ddtree.workbook.plots.speed.common import EVERY_LINE
from ddtree.workbook.plots.theme import INK, STAGE_COLOURS, dress, for_phone

ROW = 34  # pixels of a bar


def draw_rounds(rounds: pd.DataFrame) -> go.Figure:
    """Median milliseconds of each stage, stacked; the end of a bar tells the share outside the two forwards.

    Reads model, batch, budget, stage, us and share. Raises ValueError for a missing column or no rows.
    """
    require(rounds, "rounds", ["model", "batch", "budget", "stage", "us", "share", "share_lo", "share_hi"])
    named = rounds.assign(
        label=[f"{r['model']}, batch {r['batch']}, budget {r['budget']}" for r in rounds.to_dict("records")]
    )
    labels = list(dict.fromkeys(named["label"]))
    figure = go.Figure()
    for stage in (*FORWARDS, *(stage for stage in STAGES if stage not in FORWARDS)):
        part = named[named["stage"] == stage].set_index("label").loc[labels]
        figure.add_bar(
            x=(part["us"] / 1e3).tolist(),
            y=labels,
            orientation="h",
            name=stage,
            marker={"color": STAGE_COLOURS[stage]},
            customdata=part[["share", "us_lo", "us_hi"]].to_numpy().tolist(),
            hovertemplate="%{x:.3f} ms, %{customdata[0]:.1%} of the round (%{customdata[1]:.0f} to %{customdata[2]:.0f}"
            f" µs)<extra>{stage}</extra>",
        )
    overhead = named[named["stage"] == "overhead"].set_index("label").loc[labels]
    ends = named[named["stage"].isin(STAGES)].groupby("label")["us"].sum().loc[labels] / 1e3
    figure.add_scatter(
        x=ends.tolist(),
        y=labels,
        mode="text",
        text=[f" {share:.1%}" for share in overhead["share"]],
        textposition="middle right",
        textfont={"color": INK, "size": 11},
        showlegend=False,
        cliponaxis=False,
        hoverinfo="skip",
    )
    figure.update_layout(barmode="stack")
    figure.update_xaxes(title="milliseconds per round", range=[0, 1.14 * float(ends.max())])
    figure.update_yaxes(categoryorder="array", categoryarray=labels, range=[len(labels) - 0.5, -0.5], **EVERY_LINE)
    least, most = overhead["share"].min(), overhead["share"].max()
    title = f"Outside the two forwards: {least:.1%} to {most:.1%} of a round"
    subtitle = "Grey: draft and verify, the models' own passes. Beside each bar: the share of all the rest."
    title, subtitle = for_phone(title, subtitle)
    return dress(figure, title=title, subtitle=subtitle, plot_height=ROW * len(labels) + 16)
