"""What the verify costs by every pipeline, from logits to accepted paths, with the floor of the rows it must read."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from ddtree.workbook.plots.frames import require
from ddtree.workbook.plots.panels import dress_panels
from ddtree.workbook.plots.speed.common import EVERY_LINE, bars_of, microseconds, panels, size_name, times
from ddtree.workbook.plots.theme import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, SKY, TIMES, VERMILION

ROW = 26  # pixels of a size
COLOURS = {
    "ours: fused": BLUE,
    "ours: fused, no wait": PURPLE,
    "ours: fused, graph": SKY,
    "ours: sgl": GREEN,
    "ours: reference": GREY,
    "stock pipeline": ORANGE,
    "SGLang DFlash": VERMILION,
}
PEERS = ("stock pipeline", "SGLang DFlash")


def draw_verify(verify: pd.DataFrame) -> go.Figure:
    """Median microseconds of each pipeline with 95 % intervals, a panel for each setting of filters; floors as ticks.

    Reads pipeline, filters, vocab, batch, budget, us and over_ours with their intervals, and floor_us. Raises
    ValueError for a missing column or no rows.
    """
    require(verify, "verify", ["pipeline", "filters", "vocab", "batch", "budget", "us", "over_ours", "floor_us"])
    named = verify.assign(size=[size_name(row) for row in verify.to_dict("records")])
    settings, sizes = list(dict.fromkeys(named["filters"])), list(dict.fromkeys(named["size"]))
    heights = [ROW * len(sizes) + 20] * len(settings)
    figure = panels(settings, heights)
    for row, setting in enumerate(settings, start=1):
        here = named[named["filters"] == setting]
        for pipeline in [name for name in COLOURS if name in set(here["pipeline"])]:
            part = here[here["pipeline"] == pipeline]
            colour = COLOURS[pipeline]
            figure.add_scatter(
                x=part["us"].tolist(),
                y=part["size"].tolist(),
                mode="markers",
                name=pipeline,
                legendgroup=pipeline,
                showlegend=row == 1,
                marker={"color": colour, "size": 9, "symbol": "diamond" if pipeline in PEERS else "circle"},
                error_x=bars_of(part, "us", colour),
                customdata=part[["us_lo", "us_hi", "over_ours", "over_ours_lo", "over_ours_hi"]].to_numpy().tolist(),
                hovertemplate="%{x:.1f} µs (%{customdata[0]:.1f} to %{customdata[1]:.1f})<br>%{customdata[2]:.2f} "
                f"times ours (%{{customdata[3]:.2f}} to %{{customdata[4]:.2f}})<extra>{pipeline}</extra>",
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
            hovertemplate="rows of the walk, read once: %{x:.2f} µs<extra>floor</extra>",
            row=row,
            col=1,
        )
    figure.update_yaxes(categoryorder="array", categoryarray=sizes, range=[len(sizes) - 0.5, -0.5], **EVERY_LINE)
    figure.update_xaxes(type="log", exponentformat="none", nticks=6)
    figure.update_xaxes(title="µs", row=len(settings), col=1)
    subtitle = "From logits to accepted paths. Bars: 95% interval. Tick: reading the rows of the walk once."
    return dress_panels(figure, _finding(named), subtitle, heights, legend=True)


def _finding(named: pd.DataFrame) -> str:
    """Each peer over ours at the largest size; without a peer, what ours takes there."""
    last = named.iloc[-1]
    first = named.iloc[0]["filters"]
    here = named[(named["size"] == last["size"]) & (named["filters"] == first)].set_index("pipeline")
    peers = [f"{name} {times(here.loc[name, 'over_ours'])}{TIMES} ours" for name in PEERS if name in here.index]
    if peers:
        return f"{last['size']}: {', '.join(peers)}"
    ours = here.iloc[0]
    return f"{last['size']}: {here.index[0].removeprefix('ours: ')} takes {microseconds(ours['us'])}"
