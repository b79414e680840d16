"""Figures of 05_sweep: maps, budgets, cost, depth, entropy and slow-down of one group of cells."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.colors import sample_colorscale
from plotly.subplots import make_subplots

from ddtree.workbook.sweep.analysis import (
    ALL,
    AUTO,
    PARTS,
    BeyondEntropy,
    describe_auto,
    describe_best,
    mark_front,
    why_unclear,
)
from ddtree.workbook.sweep.results import ONLY
from ddtree.workbook.theme import (
    GREY,
    GRID,
    INK,
    PANEL_GAP,
    ROW,
    STAGE_COLOURS,
    TIMES,
    at,
    dress,
    dress_panels,
    error_bars,
    first_and_last,
    for_phone,
    require,
    temperature_colour,
    temperatures,
)

SYMBOLS = {"autoregressive": "square", "chain": "diamond", "tree": "circle"}
UNCLEAR = "±"  # marks a speed-up that may be none


def in_slice(frame: pd.DataFrame, slice_name: str) -> pd.DataFrame:
    """The rows of one slice. Raises ValueError, naming the slices there are, if it has none."""
    rows = frame[frame["slice"] == slice_name]
    if rows.empty:
        known = ", ".join(f'"{name}"' for name in frame["slice"].unique())
        raise ValueError(f'There is no slice "{slice_name}" in this sweep; it has {known or "none"}.')
    return rows


def ordered_labels(labels: set[str]) -> list[str]:
    """Autoregressive, chain, trees by budget, and last the tree whose budget is chosen round by round."""

    def place(label: str) -> tuple[int, int]:
        kind, _, budget = label.partition(" ")
        fixed = int(budget) if budget.isdigit() else 0
        return ["autoregressive", "chain", "tree"].index(kind) + (budget == "auto"), fixed

    return sorted(labels, key=place)


def tick(label: str) -> str:
    """What an axis of budgets says: "16" for "tree 16", "chain" for "chain"."""
    return label.removeprefix("tree ")


def sentence_on(slice_name: str) -> str:
    """A sentence for a subtitle that names the slice, "" for the only one."""
    return "" if slice_name == ONLY else f" Runs with {slice_name}."


def bars(frame: pd.DataFrame, value: str, colour: str) -> dict[str, object]:
    """Error bars of a colour from the columns VALUE, VALUE_lo and VALUE_hi."""
    above = (frame[f"{value}_hi"] - frame[value]).tolist()
    below = (frame[value] - frame[f"{value}_lo"]).tolist()
    look = {"color": colour, "thickness": 1.2, "width": 4}
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below, **look}


def capital(text: str) -> str:
    """ "Tree 16" for "tree 16", at the start of a sentence."""
    return text[:1].upper() + text[1:]


def resampled(prompts: pd.Series) -> str:
    """How an interval came about: "95% interval over 8 prompts", or that there is none."""
    least, most = int(prompts.min()), int(prompts.max())
    if most < 2:
        return "one prompt, so no interval"
    return f"95% interval over {most if least == most else f'{least} to {most}'} prompts"


def draw_nothing(why: str) -> go.Figure:
    """A figure that says why there is nothing to draw, so that a control can come to it and leave it again."""
    figure = go.Figure()
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    title, _ = for_phone(why, "")
    return dress(figure, title=title, subtitle="", plot_height=20, footer=20)


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
        hover[i][j] = _map_hover(row, scale)
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


def _map_hover(row: Mapping[Any, Any], scale: Scale) -> str:
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


SPREAD = 0.5  # of the distance of two budgets, over which the temperatures stand side by side
RATED = ("ratio", "ratio_lo", "ratio_hi")


def draw_budgets(budgets: pd.DataFrame, slice_name: str) -> go.Figure:
    """Speed-up with 95 % intervals against tree budget; a star is the fastest, full circles are not clearly slower.

    Reads what `compare_budgets` returns for one slice, whose name it takes for the subtitle. Raises ValueError for a
    missing column, an empty frame, or a value outside its interval.
    """
    require(budgets, "budgets", ["temperature", "label", "speedup", "speedup_lo", "speedup_hi", *RATED, "best", "tied"])
    labels = ordered_labels(set(budgets["label"]))
    values = temperatures(budgets)
    figure = go.Figure()
    for number, temperature in enumerate(values):
        part = budgets[budgets["temperature"] == temperature]
        shift = SPREAD * (number / (len(values) - 1) - 0.5) if len(values) > 1 else 0.0
        colour = temperature_colour(temperature)
        fixed = part[part["label"] != AUTO]
        figure.add_scatter(
            x=[labels.index(label) + shift for label in fixed["label"]],
            y=fixed["speedup"].tolist(),
            mode="lines",
            name=at(temperature),
            legendgroup=at(temperature),
            line={"color": colour, "width": 1.5},
            hoverinfo="skip",
        )
        figure.add_trace(_marks(part, [labels.index(label) + shift for label in part["label"]], temperature))
    figure.add_hline(y=1, line={"color": INK, "width": 1, "dash": "dot"})
    ticks = {"tickvals": list(range(len(labels))), "ticktext": [tick(label) for label in labels]}
    figure.update_xaxes(title="tree budget", range=[-0.5, len(labels) - 0.5], **ticks)
    figure.update_yaxes(title="speed-up over autoregressive")
    ends = first_and_last(values)
    title = f"Best budget: {', '.join(describe_best(budgets, temperature) for temperature in ends)}"
    auto = "; ".join(said for said in (describe_auto(budgets, temperature) for temperature in ends) if said)
    marks = f"Star: fastest; full: not clearly slower; bars: {resampled(budgets['prompts'])}."
    subtitle = f"{marks}{f' Auto: {auto}.' if auto else ''}{sentence_on(slice_name)}"
    title, subtitle = for_phone(title, subtitle)
    return dress(figure, title=title, subtitle=subtitle, plot_height=320)


def _marks(part: pd.DataFrame, x: list[float], temperature: float) -> go.Scatter:
    colour = temperature_colour(temperature)
    return go.Scatter(
        x=x,
        y=part["speedup"].tolist(),
        mode="markers",
        legendgroup=at(temperature),
        showlegend=False,
        marker={
            "color": colour,
            "symbol": [_symbol(row) for row in part.to_dict("records")],
            "size": [14 if best else 9 for best in part["best"]],
            "line": {"color": colour, "width": 1.5},
        },
        error_y={**error_bars(part, "speedup"), "color": colour, "thickness": 1.2, "width": 3},
        text=part["label"].tolist(),
        customdata=part[["speedup_lo", "speedup_hi", *RATED, "prompts"]].to_numpy().tolist(),
        hovertemplate="%{text}: %{y:.2f} times autoregressive<br>95% interval %{customdata[0]:.2f} to "
        "%{customdata[1]:.2f}<br>%{customdata[2]:.2f} of the best fixed budget (%{customdata[3]:.2f} to "
        f"%{{customdata[4]:.2f}}), %{{customdata[5]}} prompts<extra>{at(temperature)}</extra>",
    )


def _symbol(row: Mapping[Any, Any]) -> str:
    if row["best"]:
        return "star"
    return "circle" if row["tied"] else "circle-open"


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


SHALLOW, DEEP = 0.85, 0.25  # of the scale, where the colours read on white and on black


def draw_depths(depths: pd.DataFrame, slice_name: str, label: str) -> go.Figure:
    """Share of rounds that accepted at least d drafts against temperature, with 95 % intervals, a line for each d.

    Reads what `accepted_depths` returns; slice and label are for the titles. Raises ValueError for a missing column or
    an empty frame.
    """
    require(depths, "depths", ["temperature", "depth", "share", "share_lo", "share_hi", "rounds", "prompts"])
    deepest = int(depths["depth"].max())
    figure = go.Figure()
    for d in range(1, deepest + 1):
        part = depths[depths["depth"] == d].sort_values("temperature")
        place = SHALLOW + (DEEP - SHALLOW) * (d - 1) / max(1, deepest - 1)
        colour = sample_colorscale("Viridis", [place])[0]
        figure.add_scatter(
            x=part["temperature"].tolist(),
            y=part["share"].tolist(),
            mode="lines+markers",
            name=f"d = {d}",
            line={"color": colour, "width": 2},
            marker={"color": colour, "size": 8},
            error_y=bars(part, "share", colour),
            customdata=part[["share_lo", "share_hi", "rounds", "prompts"]].to_numpy().tolist(),
            hovertemplate=f"T = %{{x:g}}: {d} or more drafts in %{{y:.1%}} of rounds<br>95% interval "
            "%{customdata[0]:.1%} to %{customdata[1]:.1%}<br>%{customdata[2]:.0f} rounds, %{customdata[3]:.0f} prompts"
            f"<extra>{label}</extra>",
        )
    figure.update_xaxes(title="temperature", tickvals=temperatures(depths))
    figure.update_yaxes(title="rounds that accepted d or more", tickformat=".0%", range=[0, 1.03])
    subtitle = f"Bars: {resampled(depths['prompts'])}.{sentence_on(slice_name)}"
    title, subtitle = for_phone(_depths_finding(depths, label), subtitle)
    return dress(figure, title=title, subtitle=subtitle, plot_height=320)


def _depths_finding(depths: pd.DataFrame, label: str) -> str:
    """The first depth's shares at both ends, and whether their intervals are apart."""
    first = {row["temperature"]: row for row in depths[depths["depth"] == 1].to_dict("records")}
    ends = first_and_last(temperatures(depths))
    shares = ", ".join(f"{first[t]['share']:.0%} at {at(t)}" for t in ends)
    cold, hot = first[ends[0]], first[ends[-1]]
    apart = cold["share_hi"] < hot["share_lo"] or hot["share_hi"] < cold["share_lo"]
    unclear = "" if len(ends) < 2 or (apart and cold["prompts"] > 1) else " (no clear difference)"
    return f"{capital(label)}: a draft accepted in {shares}{unclear}"


PANEL = 210  # pixels
PANELS = {"offered": "chance of a first draft", "accepted": "accepted drafts"}


def draw_entropy(bins: pd.DataFrame, beyond: BeyondEntropy | None, slice_name: str, label: str) -> go.Figure:
    """Mean offered mass (chance that a first draft is accepted) and mean accepted drafts by entropy, with intervals.

    Reads what `entropy_bins` and `beyond_entropy` return for one slice and label. Raises ValueError for a missing
    column or an empty frame.
    """
    measured = [f"{name}{end}" for name in PANELS for end in ("", "_lo", "_hi")]
    require(bins, "bins", ["temperature", "entropy", *measured, "rounds", "prompts"])
    heights = [PANEL] * len(PANELS)
    gap = PANEL_GAP / (sum(heights) + PANEL_GAP)
    figure = make_subplots(rows=len(PANELS), cols=1, shared_xaxes=True, vertical_spacing=gap)
    for row, (name, title) in enumerate(PANELS.items(), start=1):
        for temperature in temperatures(bins):
            part = bins[bins["temperature"] == temperature].sort_values("entropy")
            figure.add_trace(_line(part, name, title, temperature, first=row == 1), row=row, col=1)
        figure.update_yaxes(title=title, row=row, col=1, rangemode="tozero")
    figure.update_yaxes(tickformat=".0%", range=[0, 1.05], row=1, col=1)
    figure.update_xaxes(title="target's entropy at the root (nats)", row=len(PANELS), col=1)
    bar = f"Bars: {resampled(bins['prompts'])}.{sentence_on(slice_name)}"
    marks = f"{capital(label)}; greedy rounds stand at 0. {bar}"
    if beyond is None:
        title = "Acceptance falls with entropy" if _falls(bins) else "No clear fall of acceptance with entropy"
        return dress_panels(
            figure, title, f"Fewer than two sampled temperatures: none to compare. {marks}", heights, legend=True
        )
    return dress_panels(figure, beyond.verdict, marks, heights, legend=True)


def _line(part: pd.DataFrame, name: str, title: str, temperature: float, *, first: bool) -> go.Scatter:
    together = temperature == ALL
    colour = INK if together else temperature_colour(temperature)
    legend = "all sampled" if together else at(temperature)
    return go.Scatter(
        x=part["entropy"].tolist(),
        y=part[name].tolist(),
        mode="lines+markers",
        name=legend,
        legendgroup=legend,
        showlegend=first,
        line={"color": colour, "width": 3 if together else 1.2, "dash": "dot" if together else "solid"},
        marker={"color": colour, "size": 5 if together else 8},
        error_y=bars(part, name, colour),
        customdata=part[[f"{name}_lo", f"{name}_hi", "rounds", "prompts"]].to_numpy().tolist(),
        hovertemplate=f"entropy %{{x:.2f}}: {title} %{{y:.2f}}<br>95% interval %{{customdata[0]:.2f}} to "
        f"%{{customdata[1]:.2f}}<br>%{{customdata[2]:.0f}} rounds, %{{customdata[3]:.0f}} prompts"
        f"<extra>{legend}</extra>",
    )


def _falls(bins: pd.DataFrame) -> bool:
    """Whether the offered mass of the highest bin of all sampled rounds lies clearly under that of the lowest."""
    together = bins[bins["temperature"] == ALL].sort_values("entropy")
    known = len(together) > 1 and together["prompts"].max() > 1
    return known and bool(together["offered_hi"].iloc[-1] < together["offered_lo"].iloc[0])


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
        customdata=[_slowdown_hover(row) for row in rows.to_dict("records")],
        hovertemplate="%{y}: %{customdata}<extra></extra>",
    )
    _axes(figure, rows, labels, low, high)
    row = rows[rows["label"] == reference].iloc[0].to_dict()
    marks = f"Bars: {resampled(split['prompts'])}. Autoregressive drafts nothing: sampling's own cost, and drift."
    title, subtitle = for_phone(_slowdown_finding(row), f"{marks}{sentence_on(slice_name)}")
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


def _slowdown_hover(row: Mapping[Any, Any]) -> str:
    factor = f"{row['speed']:.2f} times as fast (95% interval {row['speed_lo']:.2f} to {row['speed_hi']:.2f})"
    if not row["clear"]:
        return f"{factor}<br>{why_unclear(row)}"
    shares = f"acceptance {row['share_acceptance']:.0%}, round time {row['share_time']:.0%} of it"
    return f"{factor}<br>{shares}, {row['prompts']} prompts"


def _slowdown_finding(row: Mapping[Any, Any]) -> str:
    ends = f"{capital(row['label'])}, {at(row['cold'])} to {at(row['hot'])}"
    if not row["clear"]:
        return f"{ends}: {row['speed']:.2f}{TIMES} the speed, {why_unclear(row)}"
    noun = "loss" if row["speed"] < 1 else "gain"
    interval = f"{row['share_acceptance_lo']:.0%} to {row['share_acceptance_hi']:.0%}"
    share = f"acceptance is {row['share_acceptance']:.0%} ({interval}) of the {noun}"
    return f"{ends}: {row['speed']:.2f}{TIMES} the speed, {share}"
