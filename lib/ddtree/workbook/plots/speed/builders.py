"""How many times longer the heap path takes than `build_tree`, at every size."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from ddtree.workbook.plots.frames import require
from ddtree.workbook.plots.speed.common import EVERY_LINE, bars_of, ratio_ticks, size_name, times
from ddtree.workbook.plots.theme import BLUE, INK, SKY, TIMES, dress, for_phone

ROW = 30  # pixels of a size
COLOURS = (BLUE, SKY)


def draw_builders(builders: pd.DataFrame) -> go.Figure:
    """The heap's median time over ours with 95 % intervals, one line for each size; right of 1 ours is faster.

    Reads builder, vocab, batch, budget and ratio with its interval. Raises ValueError for a missing column or no rows.
    """
    require(builders, "builders", ["builder", "vocab", "batch", "budget", "ratio", "ratio_lo", "ratio_hi", "heap_us"])
    named = builders.assign(size=[size_name(row) for row in builders.to_dict("records")])
    sizes = list(dict.fromkeys(named["size"]))
    figure = go.Figure()
    for builder, colour in zip(dict.fromkeys(named["builder"]), COLOURS, strict=False):
        part = named[named["builder"] == builder]
        figure.add_scatter(
            x=part["ratio"].tolist(),
            y=part["size"].tolist(),
            mode="markers",
            name=builder,
            marker={"color": colour, "size": 10},
            error_x=bars_of(part, "ratio", colour),
            customdata=part[["ratio_lo", "ratio_hi", "heap_us"]].to_numpy().tolist(),
            hovertemplate="%{x:.2f} times faster than the heap (%{customdata[0]:.2f} to %{customdata[1]:.2f}), which "
            f"takes %{{customdata[2]:.0f}} µs<extra>{builder}</extra>",
        )
    figure.add_vline(x=1, line={"color": INK, "width": 1, "dash": "dot"})
    figure.update_yaxes(categoryorder="array", categoryarray=sizes, range=[len(sizes) - 0.5, -0.5], **EVERY_LINE)
    ticks = ratio_ticks(min(1.0, float(named["ratio_lo"].min())), max(1.0, float(named["ratio_hi"].max())))
    names = [f"{tick:g}" for tick in ticks]
    figure.update_xaxes(type="log", title="heap time over ours", tickvals=ticks, ticktext=names)
    ordered = named.sort_values("ratio")
    worst, best = ordered.iloc[0], ordered.iloc[-1]
    title = f"Heap over ours: {times(worst['ratio'])} to {times(best['ratio'])}{TIMES}"
    subtitle = (
        "Both from logits to a tree on the device, top-k over the vocabulary included. Bars: 95% interval. "
        f"Smallest at {worst['size']}."
    )
    title, subtitle = for_phone(title, subtitle)
    return dress(figure, title=title, subtitle=subtitle, plot_height=ROW * len(sizes) + 20)
