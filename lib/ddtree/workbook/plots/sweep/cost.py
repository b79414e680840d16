"""What a round gives against what it takes: tokens per round over milliseconds per round, with lines of equal speed."""

from __future__ import annotations

import math

import pandas as pd
import plotly.graph_objects as go

from ddtree.workbook.plots.frames import at, error_bars, first_and_last, require, temperatures
from ddtree.workbook.plots.sweep.common import SYMBOLS, in_slice, resampled, sentence_on, tick
from ddtree.workbook.plots.theme import GRID, INK, dress, for_phone, temperature_colour
from ddtree.workbook.sweep.pareto import mark_front

MEASURED = [f"{name}{end}" for name in ("acceptance", "round_ms", "tokens_per_s") for end in ("", "_lo", "_hi")]
ISO_LINES = 5
FAR = 30  # times: speeds that far apart have lines at even ratios


def draw_cost(points: pd.DataFrame, slice_name: str) -> go.Figure:
    """Tokens per round against milliseconds per round; a colour for each temperature, full marks on its front.

    A decoder is on the front if no other of its temperature commits as many tokens in less time. On a grey line every
    point has the same tokens per second. Reads what `measure_points` returns. Raises ValueError for a missing column
    or no such slice.
    """
    require(points, "points", ["slice", "temperature", "label", "strategy", *MEASURED])
    marked = mark_front(in_slice(points, slice_name))
    x_range = _range(marked["round_ms_lo"], marked["round_ms_hi"])
    y_range = _range(marked["acceptance_lo"], marked["acceptance_hi"])
    figure = go.Figure()
    _add_iso_lines(figure, x_range, y_range)
    ends = first_and_last(temperatures(marked))
    for temperature in temperatures(marked):
        part = marked[marked["temperature"] == temperature].sort_values("round_ms")
        _add_temperature(figure, part, temperature, named=temperature in ends)
    figure.update_xaxes(title="milliseconds per round", range=x_range, showgrid=False)
    figure.update_yaxes(title="tokens per round", range=y_range, showgrid=False)
    found = [_fastest(marked, temperature) for temperature in ends]
    marks = "Square: autoregressive, diamond: chain, circle: tree; full and joined: on the front."
    subtitle = f"{marks} Grey: equal tokens/s. Bars: {resampled(marked['prompts'])}.{sentence_on(slice_name)}"
    title, subtitle = for_phone(f"Highest mean tokens/s: {', '.join(found)}", subtitle)
    return dress(figure, title=title, subtitle=subtitle, plot_height=400)


def _add_temperature(figure: go.Figure, part: pd.DataFrame, temperature: float, *, named: bool) -> None:
    colour = temperature_colour(temperature)
    front = part[part["front"]]
    figure.add_scatter(
        x=front["round_ms"].tolist(),
        y=front["acceptance"].tolist(),
        mode="lines",
        line={"color": colour, "width": 1.5},
        legendgroup=at(temperature),
        showlegend=False,
        hoverinfo="skip",
    )
    figure.add_scatter(
        x=part["round_ms"].tolist(),
        y=part["acceptance"].tolist(),
        mode="markers+text",
        name=at(temperature),
        legendgroup=at(temperature),
        marker={
            "color": colour,
            "size": 9,
            "symbol": [SYMBOLS[row["strategy"]] + ("" if row["front"] else "-open") for row in part.to_dict("records")],
            "line": {"color": colour, "width": 1.5},
        },
        error_x={**error_bars(part, "round_ms"), "color": colour, "thickness": 0.8, "width": 0},
        error_y={**error_bars(part, "acceptance"), "color": colour, "thickness": 0.8, "width": 0},
        text=[tick(row["label"]) if named and row["strategy"] == "tree" else "" for row in part.to_dict("records")],
        textposition="top left",
        textfont={"size": 10, "color": colour},
        customdata=part[["label", "tokens_per_s", "tokens_per_s_lo", "tokens_per_s_hi"]].to_numpy().tolist(),
        hovertemplate="%{customdata[0]}: %{y:.2f} tokens in %{x:.1f} ms<br>%{customdata[1]:.1f} tokens/s "
        f"(%{{customdata[2]:.1f}} to %{{customdata[3]:.1f}})<extra>{at(temperature)}</extra>",
    )


def _add_iso_lines(figure: go.Figure, x_range: list[float], y_range: list[float]) -> None:
    slowest, fastest = 1e3 * y_range[0] / x_range[1], 1e3 * y_range[1] / x_range[0]
    for speed in _round_speeds(slowest, fastest):
        right = min(x_range[1], 1e3 * y_range[1] / speed)
        figure.add_scatter(
            x=[0, right], y=[0, right * speed / 1e3], mode="lines", line={"color": GRID, "width": 1}, hoverinfo="skip"
        )
        figure.data[-1].showlegend = False
        figure.add_annotation(
            x=right,
            y=right * speed / 1e3,
            text=f"{speed:g}/s",
            showarrow=False,
            xanchor="right",
            yanchor="top",
            font={"size": 10, "color": INK},
        )


def _round_speeds(slowest: float, fastest: float) -> list[float]:
    """About `ISO_LINES` round numbers between the two: evenly spaced, or 1, 2, 5, 10 where they are far apart."""
    if fastest > FAR * slowest:
        powers = range(math.floor(math.log10(slowest)), math.ceil(math.log10(fastest)))
        return [step * 10.0**power for power in powers for step in (1, 2, 5) if slowest < step * 10.0**power < fastest]
    rough = (fastest - slowest) / (ISO_LINES + 1)
    power = 10 ** math.floor(math.log10(rough))
    step = min((1, 2, 5, 10), key=lambda factor: abs(factor * power - rough)) * power
    first = math.floor(slowest / step) + 1
    return [step * number for number in range(first, math.ceil(fastest / step))]


def _range(low: pd.Series, high: pd.Series) -> list[float]:
    bottom, top = float(low.min()), float(high.max())
    room = 0.08 * (top - bottom) or 0.1 * top
    return [max(bottom - room, bottom / 2), top + room]  # speeds of lines need both ends above 0


def _fastest(marked: pd.DataFrame, temperature: float) -> str:
    best = marked[marked["temperature"] == temperature].sort_values("tokens_per_s").iloc[-1]
    return f"{best['tokens_per_s']:.1f} by {best['label']} at {at(temperature)}"
