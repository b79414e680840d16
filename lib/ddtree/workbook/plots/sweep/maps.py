"""Temperature against budget as squares: acceptance and speed-up, the value in the square, what is missing named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ddtree.workbook.plots.frames import at, first_and_last, require, temperatures
from ddtree.workbook.plots.sweep.common import UNCLEAR, in_slice, ordered_labels, resampled, sentence_on, tick
from ddtree.workbook.plots.theme import GREY, INK, TIMES, dress, for_phone

Missing = Mapping[tuple[float, str], str]  # temperature and label of a planned square to why it is empty
SQUARE = 44  # pixels of height
BAR_DROP, FOOTER = 62, 128  # pixels from the squares to the colour bar, and under the squares in all
TICKS = ((0.6, (0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.4)), (1.2, (0.5, 0.7, 1, 1.4, 2)), (9, (0.125, 0.25, 0.5, 1, 2, 4, 8)))
# Blue and orange of equal weight meet in a pale middle: told apart with every form of colour blindness.
DIVERGING = ((0.0, "#B35806"), (0.25, "#F1A340"), (0.5, "#F3F3F3"), (0.75, "#67A9CF"), (1.0, "#1F5F99"))
KEYS = ("slice", "temperature", "label", "strategy", "cells", "prompts", "rounds")


@dataclass(frozen=True, slots=True)
class Scale:
    """How a column becomes colour: the map of a value, its range, colours, and the bar's ticks."""

    column: str
    unit: str
    colours: Any
    logarithmic: bool
    low: float
    high: float
    ticks: list[float]

    def of(self, value: float) -> float:
        """The value on the axis of the colours."""
        return float(np.log2(value)) if self.logarithmic else value


def draw_acceptance_map(points: pd.DataFrame, missing: Missing, slice_name: str) -> go.Figure:
    """Mean acceptance length (tokens per round) by temperature and budget of one slice.

    Reads what `measure_points` and `Sweep.missing` return. Raises ValueError for a missing column or no such slice.
    """
    drafting = _drafting(points, slice_name, "acceptance")
    highest = float(drafting["acceptance"].max())
    scale = Scale("acceptance", "tokens per round", "Cividis", False, 1.0, max(1.1, highest), [])
    found = []
    for temperature in first_and_last(temperatures(drafting)):
        best = drafting[drafting["temperature"] == temperature].sort_values("acceptance").iloc[-1]
        found.append(f"{best['acceptance']:.2f} at {at(temperature)} ({best['label']})")
    subtitle = f"Accepted drafts and the final token. Hover: {resampled(drafting['prompts'])}.{sentence_on(slice_name)}"
    return _map(drafting, missing, scale, f"Most tokens a round: {', '.join(found)}", subtitle)


def draw_speedup_map(points: pd.DataFrame, missing: Missing, slice_name: str) -> go.Figure:
    """Speed-up over autoregressive decoding of the same cells, by temperature and budget of one slice.

    Colours are centred on 1 on a logarithmic scale: 0.5 and 2 are equally far from it. Reads and raises as
    `draw_acceptance_map`.
    """
    drafting = _drafting(points, slice_name, "speedup")
    logs = np.log2(drafting["speedup"].to_numpy(dtype=float))
    reach = max(0.2, float(np.abs(logs).max()))
    fitting = next(values for most, values in TICKS if reach <= most or most == TICKS[-1][0])
    ticks = [value for value in fitting if abs(np.log2(value)) <= reach]
    scale = Scale("speedup", "times autoregressive", DIVERGING, True, 2**-reach, 2**reach, ticks)
    subtitle = f"{UNCLEAR}: the interval holds 1. Hover: {resampled(drafting['prompts'])}.{sentence_on(slice_name)}"
    return _map(drafting, missing, scale, _speed_finding(drafting), subtitle)


def _drafting(points: pd.DataFrame, slice_name: str, column: str) -> pd.DataFrame:
    require(points, "points", [*KEYS, column, f"{column}_lo", f"{column}_hi"])
    rows = in_slice(points, slice_name)
    rows = rows[rows["strategy"] != "autoregressive"]
    if rows.empty:
        raise ValueError(f'The slice "{slice_name}" has autoregressive rounds alone; there is no budget to draw.')
    return rows


def _map(drafting: pd.DataFrame, missing: Missing, scale: Scale, title: str, subtitle: str) -> go.Figure:
    rows = sorted({*temperatures(drafting), *(temperature for temperature, _ in missing)})
    labels = ordered_labels({*drafting["label"], *(label for _, label in missing)})
    z = [[None] * len(labels) for _ in rows]
    text, hover = [[""] * len(labels) for _ in rows], [[""] * len(labels) for _ in rows]
    for row in drafting.to_dict("records"):
        i, j = rows.index(row["temperature"]), labels.index(row["label"])
        z[i][j] = scale.of(row[scale.column])  # type: ignore[call-overload]
        text[i][j] = _written(row, scale)
        hover[i][j] = _hover(row, scale)
    figure = go.Figure(
        go.Heatmap(
            x=list(range(len(labels))),
            y=list(range(len(rows))),
            z=z,
            text=text,
            texttemplate="%{text}",
            customdata=hover,
            hovertemplate="%{customdata}<extra></extra>",
            hoverongaps=False,
            colorscale=scale.colours,
            zmin=scale.of(scale.low),
            zmax=scale.of(scale.high),
            xgap=2,
            ygap=2,
            colorbar=_bar(scale, SQUARE * len(rows)),
        )
    )
    _add_missing(figure, missing, rows, labels)
    budgets = {"tickvals": list(range(len(labels))), "ticktext": [tick(label) for label in labels]}
    figure.update_xaxes(title="tree budget", range=[-0.5, len(labels) - 0.5], showgrid=False, zeroline=False, **budgets)
    figure.update_yaxes(
        title="temperature",
        tickvals=list(range(len(rows))),
        ticktext=[f"{t:g}" for t in rows],
        range=[len(rows) - 0.5, -0.5],
        showgrid=False,
        zeroline=False,
    )
    title, subtitle = for_phone(title, subtitle)
    return dress(figure, title=title, subtitle=subtitle, plot_height=SQUARE * len(rows), footer=FOOTER)


def _add_missing(figure: go.Figure, missing: Missing, rows: list[float], labels: list[str]) -> None:
    """A dotted frame, a word and a reason under the pointer for every planned square without a measurement."""
    if not missing:
        return
    places = [(labels.index(label), rows.index(temperature)) for temperature, label in missing]
    for j, i in places:
        figure.add_shape(
            type="rect",
            x0=j - 0.42,
            x1=j + 0.42,
            y0=i - 0.4,
            y1=i + 0.4,
            line={"color": GREY, "width": 1, "dash": "dot"},
        )
    figure.add_scatter(
        x=[j for j, _ in places],
        y=[i for _, i in places],
        mode="text",
        text=[_word(reason) for reason in missing.values()],
        textfont={"size": 10, "color": INK},
        customdata=[f"{at(t)}, {label}<br>{reason}" for (t, label), reason in missing.items()],
        hovertemplate="%{customdata}<extra></extra>",
        showlegend=False,
    )


def _word(reason: str) -> str:
    return "not<br>run" if reason.endswith(": not run") else "failed"


def _written(row: Mapping[Any, Any], scale: Scale) -> str:
    unclear = scale.logarithmic and row[f"{scale.column}_lo"] <= 1 <= row[f"{scale.column}_hi"]
    return f"{row[scale.column]:.2f}{UNCLEAR if unclear else ''}"


def _hover(row: Mapping[Any, Any], scale: Scale) -> str:
    name = scale.column
    interval = f"95% interval {row[f'{name}_lo']:.2f} to {row[f'{name}_hi']:.2f}"
    counts = f"{row['prompts']} prompts, {row['rounds']} rounds, {row['cells']} cells"
    return f"{at(row['temperature'])}, {row['label']}: {row[name]:.2f} {scale.unit}<br>{interval}<br>{counts}"


def _bar(scale: Scale, height: int) -> dict[str, Any]:
    bar: dict[str, Any] = {
        "orientation": "h",
        "thickness": 10,
        "len": 1,
        "x": 0.5,
        "y": -BAR_DROP / height,
        "yanchor": "top",
        "title": {"text": scale.unit, "side": "bottom", "font": {"size": 12}},
        "outlinewidth": 0,
        "tickangle": 0,
    }
    if scale.ticks:
        bar |= {"tickvals": [scale.of(t) for t in scale.ticks], "ticktext": [f"{t:g}{TIMES}" for t in scale.ticks]}
    return bar


def _speed_finding(drafting: pd.DataFrame) -> str:
    faster = int((drafting["speedup_lo"] > 1).sum())
    slower = int((drafting["speedup_hi"] < 1).sum())
    best = drafting.sort_values("speedup").iloc[-1]
    top = f"{best['speedup']:.2f}{TIMES} by {best['label']} at {at(best['temperature'])}"
    if drafting["prompts"].max() < 2:
        return f"Fastest: {top}, on one prompt"
    return f"Clearly faster in {faster} of {len(drafting)} squares, clearly slower in {slower}; most: {top}"
