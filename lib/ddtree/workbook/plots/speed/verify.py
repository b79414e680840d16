"""What the verify costs by every pipeline, from logits to accepted paths, with the floor of the rows it must read."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from ddtree.workbook.plots.frames import require
from ddtree.workbook.plots.panels import dress_panels
from ddtree.workbook.plots.speed.cases import draw_cases
from ddtree.workbook.plots.speed.common import microseconds, size_name, times
from ddtree.workbook.plots.theme import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, TIMES, VERMILION

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
    figure, heights = draw_cases(named, "pipeline", "filters", COLOURS, PEERS, "rows of the walk, read once")
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
