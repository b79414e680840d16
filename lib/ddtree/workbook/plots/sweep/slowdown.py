"""Where the speed goes between the lowest and the highest temperature: acceptance, and each stage of a round."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from ddtree.workbook.plots.frames import at, require
from ddtree.workbook.plots.panels import ROW
from ddtree.workbook.plots.sweep.common import capital, ordered_labels, resampled, sentence_on
from ddtree.workbook.plots.theme import INK, STAGE_COLOURS, TIMES, dress, for_phone
from ddtree.workbook.sweep.slowdown import PARTS, why_unclear

COLOURS = {"acceptance": "#CCBB44", **STAGE_COLOURS}  # none of a temperature or a strategy
FINE_TICKS = (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5)
COARSE_TICKS = (0.1, 0.2, 0.35, 0.5, 0.7, 1, 1.4, 2, 3, 5, 10)
WIDE = 0.9  # of an axis, in logarithms
SHARES = [f"share_acceptance{end}" for end in ("", "_lo", "_hi")]


def draw_slowdown(split: pd.DataFrame, slice_name: str, reference: str) -> go.Figure:
    """The factor of tokens per second from cold to hot for each decoder, as parts that multiply to it.

    Bars left of 1 cost speed, bars right of 1 give some back; the mark is the whole with its 95 % interval. Lengths are
    logarithms, so that parts add up. The title speaks of `reference`, a label. Reads what `split_slowdown` returns.
    Raises ValueError for a missing column, an empty frame, or a reference that it does not hold.
    """
    require(split, "split", ["label", "cold", "hot", "speed", "speed_lo", "speed_hi", *SHARES, "clear", "prompts"])
    if reference not in set(split["label"]):
        raise ValueError(f'"{reference}" has no two temperatures in this slice; {", ".join(split["label"])} have.')
    labels = ordered_labels(set(split["label"]))
    rows = split.set_index("label").loc[labels].reset_index()
    figure = go.Figure()
    for part in PARTS:
        figure.add_bar(
            x=rows[f"part_{part}"].tolist(),
            y=labels,
            orientation="h",
            name=part,
            marker={"color": COLOURS[part]},
            customdata=[
                [math.exp(row[f"part_{part}{end}"]) for end in ("", "_lo", "_hi")] for row in rows.to_dict("records")
            ],
            hovertemplate=f"%{{y}}: {part} alone, factor %{{customdata[0]:.2f}}<br>95% interval %{{customdata[1]:.2f}} "
            "to %{customdata[2]:.2f}<extra></extra>",
        )
    whole = [math.log(value) for value in rows["speed"]]
    low, high = ([math.log(value) for value in rows[f"speed_{end}"]] for end in ("lo", "hi"))
    figure.add_scatter(
        x=whole,
        y=labels,
        mode="markers",
        name="tokens/s",
        marker={"color": INK, "size": 9, "symbol": "diamond"},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [h - w for h, w in zip(high, whole, strict=True)],
            "arrayminus": [w - lo for lo, w in zip(low, whole, strict=True)],
            "color": INK,
            "thickness": 1.5,
            "width": 5,
        },
        customdata=[_hover(row) for row in rows.to_dict("records")],
        hovertemplate="%{y}: %{customdata}<extra></extra>",
    )
    _axes(figure, rows, labels, low, high)
    row = rows[rows["label"] == reference].iloc[0].to_dict()
    marks = f"Bars: {resampled(split['prompts'])}. Autoregressive drafts nothing: sampling's own cost, and drift."
    title, subtitle = for_phone(_finding(row), f"{marks}{sentence_on(slice_name)}")
    return dress(figure, title=title, subtitle=subtitle, plot_height=ROW * len(labels) + 12, footer=150)


def _axes(figure: go.Figure, rows: pd.DataFrame, labels: list[str], low: list[float], high: list[float]) -> None:
    parts = rows[[f"part_{part}" for part in PARTS]]
    left = min(float(parts.clip(upper=0).sum(axis=1).min()), *low) - 0.03
    right = max(float(parts.clip(lower=0).sum(axis=1).max()), *high) + 0.03
    ticks = [
        value for value in (FINE_TICKS if right - left < WIDE else COARSE_TICKS) if left <= math.log(value) <= right
    ]
    figure.update_layout(barmode="relative")
    figure.update_yaxes(categoryorder="array", categoryarray=labels, range=[len(labels) - 0.5, -0.5])
    figure.update_xaxes(
        title=f"tokens/s at {at(rows['hot'].iloc[0])} over {at(rows['cold'].iloc[0])}",
        range=[left, right],
        tickangle=0,
        tickvals=[math.log(value) for value in ticks],
        ticktext=[f"{value:g}{TIMES}" for value in ticks],
    )
    figure.add_vline(x=0, line={"color": INK, "width": 1})


def _hover(row: Mapping[Any, Any]) -> str:
    factor = f"{row['speed']:.2f} times as fast (95% interval {row['speed_lo']:.2f} to {row['speed_hi']:.2f})"
    if not row["clear"]:
        return f"{factor}<br>{why_unclear(row)}"
    shares = f"acceptance {row['share_acceptance']:.0%}, round time {row['share_time']:.0%} of it"
    return f"{factor}<br>{shares}, {row['prompts']} prompts"


def _finding(row: Mapping[Any, Any]) -> str:
    ends = f"{capital(row['label'])}, {at(row['cold'])} to {at(row['hot'])}"
    if not row["clear"]:
        return f"{ends}: {row['speed']:.2f}{TIMES} the speed, {why_unclear(row)}"
    noun = "loss" if row["speed"] < 1 else "gain"
    interval = f"{row['share_acceptance_lo']:.0%} to {row['share_acceptance_hi']:.0%}"
    share = f"acceptance is {row['share_acceptance']:.0%} ({interval}) of the {noun}"
    return f"{ends}: {row['speed']:.2f}{TIMES} the speed, {share}"
