"""What one layer's attention costs in a verify, the project's kernel beside SGLang's, with the floor of its bytes."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from ddtree.workbook.plots.frames import require
from ddtree.workbook.plots.panels import dress_panels
from ddtree.workbook.plots.speed.cases import draw_cases
from ddtree.workbook.plots.speed.common import microseconds, times
from ddtree.workbook.plots.theme import BLUE, ORANGE, TIMES

OURS, SGLANG = "ours: tree attention", "SGLang extend"
COLOURS = {OURS: BLUE, SGLANG: ORANGE}


def draw_attention(attention: pd.DataFrame) -> go.Figure:
    """Median microseconds of a layer with 95 % intervals, a panel for the heads of each model; floors as ticks.

    Reads attention, model, prefix, batch, budget, us and over_ours with their intervals, and floor_us. Raises
    ValueError for a missing column or no rows.
    """
    require(attention, "attention", ["attention", "model", "prefix", "batch", "budget", "us", "over_ours", "floor_us"])
    sizes = [
        f"{row['prefix']:,} tokens, batch {row['batch']}, budget {row['budget']}"
        for row in attention.to_dict("records")
    ]
    headings = [f"heads of {model}" for model in attention["model"]]
    named = attention.assign(size=sizes, heads=headings)
    figure, heights = draw_cases(named, "attention", "heads", COLOURS, (SGLANG,), "keys and values, read once")
    subtitle = "One layer of a verify. Tokens: of the prefix. Bars: 95% interval. Tick: reading keys and values once."
    return dress_panels(figure, _finding(named), subtitle, heights, legend=True)


def _finding(named: pd.DataFrame) -> str:
    """The range of SGLang's time over ours; without SGLang, what ours takes at the largest size."""
    ratios = named.loc[named["attention"] == SGLANG, "over_ours"]
    if len(ratios):
        return f"SGLang's extend kernel takes {times(ratios.min())} to {times(ratios.max())}{TIMES} as long as ours"
    last = named.iloc[-1]
    return f"{last['heads']}, {last['size']}: {microseconds(last['us'])} a layer"
