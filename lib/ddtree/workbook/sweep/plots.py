"""Draws the figures of 05_sweep: maps, budgets, cost, depth, entropy and slow-down of one group of cells.

Each figure shows one slice; a title claims a difference only where its intervals show one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from ddtree.workbook.sweep.analysis import (
    ALL,
    AUTO,
    PARTS,
    STRATEGIES,
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
    ROW,
    STAGE_COLOURS,
    TIMES,
    add_series,
    apply_layout,
    capitalised,
    describe_ends,
    ends,
    interval_columns,
    jitter,
    name_rows,
    named_ticks,
    require,
    stacked_panels,
    temperature_colour,
    temperature_label,
    temperatures,
)

Missing = Mapping[tuple[float, str], str]  # temperature and label of a planned square to why it is empty

UNCLEAR = "±"  # marks a speed-up that may be none
SQUARE = 44  # pixels of height
BAR_DROP, MAP_FOOTER = 62, 128  # pixels from the squares to the colour bar, and under the squares in all
TICKS = ((0.6, (0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.4)), (1.2, (0.5, 0.7, 1, 1.4, 2)), (9, (0.125, 0.25, 0.5, 1, 2, 4, 8)))
# Blue and orange of equal weight meet in a pale middle: told apart with every form of colour blindness.
DIVERGING = ((0.0, "#B35806"), (0.25, "#F1A340"), (0.5, "#F3F3F3"), (0.75, "#67A9CF"), (1.0, "#1F5F99"))
SPREAD = 0.5  # of the distance of two budgets, over which the temperatures lie side by side
COST_SYMBOLS = {"autoregressive": "square", "chain": "diamond", "tree": "circle"}
ISO_LINES = 5  # of equal tokens per second
FAR = 30  # times: speeds that far apart have lines at even ratios
SHALLOW, DEEP = 0.85, 0.25  # of the scale, where the colours read on white and on black
PANELS = {"offered": "chance of a first draft", "accepted": "accepted drafts"}
PANEL = 210  # pixels
PART_COLOURS = {"acceptance": "#CCBB44", **STAGE_COLOURS}  # none of a temperature or a strategy
FINE_TICKS = (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5)
COARSE_TICKS = (0.1, 0.2, 0.35, 0.5, 0.7, 1, 1.4, 2, 3, 5, 10)
WIDE = 0.9  # of an axis, in logarithms


def ordered_labels(labels: set[str]) -> list[str]:
    """Autoregressive, chain, trees by budget, and last the tree whose budget is chosen round by round."""

    def place(label: str) -> tuple[int, int]:
        kind, _, budget = label.partition(" ")
        return STRATEGIES[kind] + (budget == "auto"), int(budget) if budget.isdigit() else 0

    return sorted(labels, key=place)


def draw_acceptance_map(points: pd.DataFrame, missing: Missing, slice_name: str) -> go.Figure:
    """Mean acceptance length (tokens per round) by temperature and budget of one slice.

    Reads what `measure_points` and `Sweep.missing` return. Raises ValueError for a missing column or no such slice.
    """
    drafting = _drafting(points, slice_name, "acceptance")
    shown = drafting.assign(colour=drafting["acceptance"], written=drafting["acceptance"].map("{:.2f}".format))
    best = drafting.sort_values("acceptance").groupby("temperature").last()
    most = (
        f"{best['acceptance'][t]:.2f} at {temperature_label(t)} ({best['label'][t]})" for t in ends(list(best.index))
    )
    title = f"Most tokens a round: {', '.join(most)}"
    subtitle = f"Accepted drafts and the final token. Hover: {_intervals(drafting)}.{_runs_with(slice_name)}"
    colours = {"colorscale": "Cividis", "zmin": 1.0, "zmax": max(1.1, float(drafting["acceptance"].max()))}
    return _map(shown, missing, "acceptance", "tokens per round", colours, {}, title, subtitle)


def draw_speedup_map(points: pd.DataFrame, missing: Missing, slice_name: str) -> go.Figure:
    """Speed-up over autoregressive decoding of the same cells, by temperature and budget of one slice.

    Colours are centred on 1 on a logarithmic scale: 0.5 and 2 are equally far from it. Reads and raises as
    `draw_acceptance_map`.
    """
    drafting = _drafting(points, slice_name, "speedup")
    logs = drafting["speedup"].map(math.log2)
    unclear = (drafting["speedup_lo"] <= 1) & (drafting["speedup_hi"] >= 1)
    written = drafting["speedup"].map("{:.2f}".format) + unclear.map({True: UNCLEAR, False: ""})
    reach = max(0.2, float(logs.abs().max()))
    fitting = next(values for most, values in TICKS if reach <= most or most == TICKS[-1][0])
    ticks = _factor_ticks(fitting, -reach, reach, math.log2)
    colours = {"colorscale": DIVERGING, "zmin": -reach, "zmax": reach}
    shown = drafting.assign(colour=logs, written=written)
    subtitle = f"{UNCLEAR}: the interval holds 1. Hover: {_intervals(drafting)}.{_runs_with(slice_name)}"
    title = _speedup_title(drafting)
    return _map(shown, missing, "speedup", "times autoregressive", colours, ticks, title, subtitle)


def _factor_ticks(factors: Sequence[float], low: float, high: float, log: Callable[[float], float]) -> dict[str, Any]:
    """Ticks named "1.4×" on a logarithmic axis, at those of `factors` whose logarithms are from `low` to `high`."""
    shown = [factor for factor in factors if low <= log(factor) <= high]
    return {"tickvals": [log(factor) for factor in shown], "ticktext": [f"{factor:g}{TIMES}" for factor in shown]}


def _drafting(points: pd.DataFrame, slice_name: str, column: str) -> pd.DataFrame:
    keys = ("slice", "temperature", "label", "strategy", "cells", "prompts", "rounds")
    require(points, "points", [*keys, *interval_columns(column)])
    rows = _in_slice(points, slice_name)
    rows = rows[rows["strategy"] != "autoregressive"]
    if rows.empty:
        raise ValueError(f'The slice "{slice_name}" has only autoregressive rounds; there is no budget to draw.')
    return rows


def _map(
    shown: pd.DataFrame,
    missing: Missing,
    value: str,
    unit: str,
    colours: dict[str, Any],
    ticks: dict[str, Any],
    title: str,
    subtitle: str,
) -> go.Figure:
    """Squares by temperature and budget, from the columns colour, written and `value`; `ticks` are the colour bar's."""
    rows = sorted({*temperatures(shown), *(temperature for temperature, _ in missing)})
    labels = ordered_labels({*shown["label"], *(label for _, label in missing)})
    hover = [
        f"{temperature_label(r['temperature'])}, {r['label']}: {r[value]:.2f} {unit}<br>95% interval "
        f"{r[f'{value}_lo']:.2f} to {r[f'{value}_hi']:.2f}<br>{r['prompts']} prompts, {r['rounds']} rounds, "
        f"{r['cells']} cells"
        for r in shown.to_dict("records")
    ]
    squares = shown.assign(hover=hover)
    z, text, details = (
        squares.pivot(index="temperature", columns="label", values=name)
        .reindex(index=rows, columns=labels)
        .astype(object)
        for name in ("colour", "written", "hover")
    )
    heat = go.Heatmap(
        x=list(range(len(labels))),
        y=list(range(len(rows))),
        z=z.where(z.notna(), None).to_numpy().tolist(),
        text=text.fillna("").to_numpy().tolist(),
        texttemplate="%{text}",
        customdata=details.fillna("").to_numpy().tolist(),
        hovertemplate="%{customdata}<extra></extra>",
        hoverongaps=False,
        xgap=2,
        ygap=2,
        colorbar={
            "orientation": "h",
            "thickness": 10,
            "len": 1,
            "x": 0.5,
            "y": -BAR_DROP / (SQUARE * len(rows)),
            "yanchor": "top",
            "outlinewidth": 0,
            "tickangle": 0,
            "title": {"text": unit, "side": "bottom", "font": {"size": 12}},
            **ticks,
        },
        **colours,
    )
    figure = go.Figure(heat)
    _add_missing(figure, missing, rows, labels)
    bare = {"showgrid": False, "zeroline": False}
    budgets = named_ticks(map(_budget, labels))
    figure.update_xaxes(title="tree budget", range=[-0.5, len(labels) - 0.5], **budgets, **bare)
    values = named_ticks(f"{t:g}" for t in rows)
    figure.update_yaxes(title="temperature", range=[len(rows) - 0.5, -0.5], **values, **bare)
    return apply_layout(figure, title, subtitle, SQUARE * len(rows), footer=MAP_FOOTER)


def _add_missing(figure: go.Figure, missing: Missing, rows: list[float], labels: list[str]) -> None:
    """A dotted frame, a word and a reason under the pointer for every planned square without a measurement."""
    if not missing:
        return
    empty = pd.DataFrame(
        {
            "x": [labels.index(label) for _, label in missing],
            "y": [rows.index(temperature) for temperature, _ in missing],
            "word": ["not<br>run" if reason.endswith(": not run") else "failed" for reason in missing.values()],
            "why": [f"{temperature_label(t)}, {label}<br>{reason}" for (t, label), reason in missing.items()],
        }
    )
    frame = {"type": "rect", "line": {"color": GREY, "width": 1, "dash": "dot"}}
    for x, y in zip(empty["x"], empty["y"], strict=True):
        figure.add_shape(x0=x - 0.42, x1=x + 0.42, y0=y - 0.4, y1=y + 0.4, **frame)
    font = {"size": 10, "color": INK}
    add_series(figure, empty, "x", "y", mode="text", text=empty["word"].tolist(), textfont=font, hover="{why}")


def _speedup_title(drafting: pd.DataFrame) -> str:
    faster, slower = int((drafting["speedup_lo"] > 1).sum()), int((drafting["speedup_hi"] < 1).sum())
    best = drafting.sort_values("speedup").iloc[-1]
    top = f"{best['speedup']:.2f}{TIMES} by {best['label']} at {temperature_label(best['temperature'])}"
    if drafting["prompts"].max() < 2:
        return f"Fastest: {top}, on one prompt"
    return f"Clearly faster in {faster} of {len(drafting)} squares, clearly slower in {slower}; most: {top}"


def draw_budgets(budgets: pd.DataFrame, slice_name: str) -> go.Figure:
    """Speed-up with 95 % intervals against tree budget; a star is the fastest, full circles are not clearly slower.

    Reads what `compare_budgets` returns for one slice, whose name it takes for the subtitle. Raises ValueError for a
    missing column, an empty frame, or a value outside its interval.
    """
    columns = ["temperature", "label", *interval_columns("ratio"), "best", "tied"]
    require(budgets, "budgets", columns, inside=["speedup"])
    labels, values = ordered_labels(set(budgets["label"])), temperatures(budgets)
    symbols = np.where(budgets["best"], "star", np.where(budgets["tied"], "circle", "circle-open"))
    marked = budgets.assign(x=budgets["label"].map(labels.index), symbol=symbols)
    figure = go.Figure()
    for number, temperature in enumerate(values):
        part = marked[marked["temperature"] == temperature]
        part = part.assign(x=part["x"] + jitter(number, len(values), SPREAD))
        name, colour = temperature_label(temperature), temperature_colour(temperature)
        fixed = part[part["label"] != AUTO]
        line = {"width": 1.5}
        add_series(figure, fixed, "x", "speedup", name=name, colour=colour, mode="lines", line=line, legendgroup=name)
        add_series(
            figure,
            part,
            "x",
            "speedup",
            colour=colour,
            mode="markers",
            error_y="speedup",
            legendgroup=name,
            marker={
                "symbol": part["symbol"].tolist(),
                "size": np.where(part["best"], 14, 9).tolist(),
                "line": {"color": colour, "width": 1.5},
            },
            hover="{label}: {y:.2f} times autoregressive<br>95% interval {speedup_lo:.2f} to {speedup_hi:.2f}<br>"
            "{ratio:.2f} of the best fixed budget ({ratio_lo:.2f} to {ratio_hi:.2f}), {prompts} prompts",
            extra=name,
        )
    figure.add_hline(y=1, line={"color": INK, "width": 1, "dash": "dot"})
    figure.update_xaxes(title="tree budget", range=[-0.5, len(labels) - 0.5], **named_ticks(map(_budget, labels)))
    figure.update_yaxes(title="speed-up over autoregressive")
    title = f"Best budget: {', '.join(describe_best(budgets, temperature) for temperature in ends(values))}"
    auto = "; ".join(said for temperature in ends(values) if (said := describe_auto(budgets, temperature)))
    marks = f"Star: fastest; full: not clearly slower; bars: {_intervals(budgets)}."
    return apply_layout(figure, title, f"{marks}{f' Auto: {auto}.' if auto else ''}{_runs_with(slice_name)}", 320)


def draw_cost(points: pd.DataFrame, slice_name: str) -> go.Figure:
    """Tokens per round against milliseconds per round; a colour for each temperature, full marks on its front.

    A decoder is on the front if no other of its temperature commits as many tokens in less time. On a grey line every
    point has the same tokens per second. Reads what `measure_points` returns. Raises ValueError for a missing column,
    no such slice, or a value outside its interval.
    """
    columns = ["slice", "temperature", "label", "strategy", *interval_columns("tokens_per_s")]
    require(points, "points", columns, inside=["round_ms", "acceptance"])
    marked = mark_front(_in_slice(points, slice_name)).sort_values("round_ms")
    marked["symbol"] = marked["strategy"].map(COST_SYMBOLS) + marked["front"].map({True: "", False: "-open"})
    values = temperatures(marked)
    named = marked["temperature"].isin(ends(values)) & (marked["strategy"] == "tree")
    marked["text"] = marked["label"].map(_budget).where(named, "")
    x_range = _range(marked["round_ms_lo"], marked["round_ms_hi"])
    y_range = _range(marked["acceptance_lo"], marked["acceptance_hi"])
    figure = go.Figure()
    _add_iso_lines(figure, x_range, y_range)
    for temperature in values:
        part = marked[marked["temperature"] == temperature]
        name, colour = temperature_label(temperature), temperature_colour(temperature)
        outline = {"color": colour, "width": 1.5}
        front = part[part["front"]]
        add_series(figure, front, "round_ms", "acceptance", mode="lines", legendgroup=name, line=outline)
        add_series(
            figure,
            part,
            "round_ms",
            "acceptance",
            name=name,
            colour=colour,
            mode="markers+text",
            error_x="round_ms",
            error_y="acceptance",
            legendgroup=name,
            marker={"size": 9, "symbol": part["symbol"].tolist(), "line": outline},
            text=part["text"].tolist(),
            textposition="top left",
            textfont={"size": 10, "color": colour},
            hover="{label}: {y:.2f} tokens in {x:.1f} ms<br>"
            "{tokens_per_s:.1f} tokens/s ({tokens_per_s_lo:.1f} to {tokens_per_s_hi:.1f})",
        )
    bare_ends = {"thickness": 0.8, "width": 0}
    figure.update_traces(error_x=bare_ends, error_y=bare_ends, selector={"mode": "markers+text"})
    figure.update_xaxes(title="milliseconds per round", range=x_range, showgrid=False)
    figure.update_yaxes(title="tokens per round", range=y_range, showgrid=False)
    fastest = marked.sort_values("tokens_per_s").groupby("temperature").last()
    found = describe_ends(values, lambda t: f"{fastest['tokens_per_s'][t]:.1f} by {fastest['label'][t]}")
    marks = "Square: autoregressive, diamond: chain, circle: tree; full and joined: on the front."
    subtitle = f"{marks} Grey: equal tokens/s. Bars: {_intervals(marked)}.{_runs_with(slice_name)}"
    return apply_layout(figure, f"Highest mean tokens/s: {found}", subtitle, 400)


def _add_iso_lines(figure: go.Figure, x_range: list[float], y_range: list[float]) -> None:
    slowest, fastest = 1e3 * y_range[0] / x_range[1], 1e3 * y_range[1] / x_range[0]
    label = {"showarrow": False, "xanchor": "right", "yanchor": "top", "font": {"size": 10, "color": INK}}
    line = {"color": GRID, "width": 1}
    for speed in _round_speeds(slowest, fastest):
        x = min(x_range[1], 1e3 * y_range[1] / speed)
        y = x * speed / 1e3
        figure.add_scatter(x=[0, x], y=[0, y], mode="lines", line=line, hoverinfo="skip", showlegend=False)
        figure.add_annotation(x=x, y=y, text=f"{speed:g}/s", **label)


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
    return [max(bottom - room, bottom / 2), top + room]  # lines of equal speed need both ends above 0


def draw_depths(depths: pd.DataFrame, slice_name: str, label: str) -> go.Figure:
    """Share of rounds that accepted at least d drafts against temperature, with 95 % intervals, a line for each d.

    Reads what `accepted_depths` returns; slice and label are for the titles. Raises ValueError for a missing column or
    an empty frame.
    """
    require(depths, "depths", ["temperature", "depth", *interval_columns("share"), "rounds", "prompts"])
    deepest = int(depths["depth"].max())
    scale = np.linspace(SHALLOW, DEEP, deepest).tolist() if deepest > 1 else [SHALLOW]
    figure = go.Figure()
    for d, colour in enumerate(sample_colorscale("Viridis", scale), start=1):
        add_series(
            figure,
            depths[depths["depth"] == d].sort_values("temperature"),
            "temperature",
            "share",
            name=f"d = {d}",
            colour=colour,
            marker={"size": 8},
            error_y="share",
            hover=f"T = {{x:g}}: {d} or more drafts in {{y:.1%}} of rounds<br>95% interval "
            "{share_lo:.1%} to {share_hi:.1%}<br>{rounds:.0f} rounds, {prompts:.0f} prompts",
            extra=label,
        )
    figure.update_xaxes(title="temperature", tickvals=temperatures(depths))
    figure.update_yaxes(title="rounds that accepted d or more", tickformat=".0%", range=[0, 1.03])
    subtitle = f"Bars: {_intervals(depths)}.{_runs_with(slice_name)}"
    return apply_layout(figure, _depths_title(depths, label), subtitle, 320)


def _depths_title(depths: pd.DataFrame, label: str) -> str:
    """The first depth's shares at both ends, and whether their intervals are apart."""
    first = depths[depths["depth"] == 1].set_index("temperature")
    values = temperatures(depths)
    low, high = first.loc[values[0]], first.loc[values[-1]]
    apart = low["share_hi"] < high["share_lo"] or high["share_hi"] < low["share_lo"]
    unclear = "" if len(values) < 2 or (apart and low["prompts"] > 1) else " (no clear difference)"
    shares = describe_ends(values, lambda t: f"{first['share'][t]:.0%}")
    return f"{capitalised(label)}: a draft accepted in {shares}{unclear}"


def draw_entropy(bins: pd.DataFrame, beyond: BeyondEntropy | None, slice_name: str, label: str) -> go.Figure:
    """Mean offered mass (chance that a first draft is accepted) and mean accepted drafts by entropy, with intervals.

    Reads what `entropy_bins` and `beyond_entropy` return for one slice and label. Raises ValueError for a missing
    column or an empty frame.
    """
    require(bins, "bins", ["temperature", "entropy", *interval_columns(*PANELS), "rounds", "prompts"])
    heights = [PANEL] * len(PANELS)
    figure = stacked_panels([""] * len(PANELS), heights)
    for row, (value, title) in enumerate(PANELS.items(), start=1):
        for temperature in temperatures(bins):
            pooled = temperature == ALL
            add_series(
                figure,
                bins[bins["temperature"] == temperature].sort_values("entropy"),
                "entropy",
                value,
                name="all sampled" if pooled else temperature_label(temperature),
                colour=INK if pooled else temperature_colour(temperature),
                row=row,
                line={"width": 3, "dash": "dot"} if pooled else {"width": 1.2},
                marker={"size": 5 if pooled else 8},
                error_y=value,
                hover=f"entropy {{x:.2f}}: {title} {{y:.2f}}<br>95% interval {{{value}_lo:.2f}} to {{{value}_hi:.2f}}"
                "<br>{rounds:.0f} rounds, {prompts:.0f} prompts",
            )
        figure.update_yaxes(title=title, row=row, col=1, rangemode="tozero")
    figure.update_yaxes(tickformat=".0%", range=[0, 1.05], row=1, col=1)
    figure.update_xaxes(title="target's entropy at the root (nats)", row=len(PANELS), col=1)
    subtitle = f"{capitalised(label)}; greedy rounds are at 0. Bars: {_intervals(bins)}.{_runs_with(slice_name)}"
    if beyond is not None:
        return apply_layout(figure, beyond.verdict, subtitle, heights)
    title = "Acceptance falls with entropy" if _falls(bins) else "No clear fall of acceptance with entropy"
    return apply_layout(figure, title, f"Fewer than two sampled temperatures: none to compare. {subtitle}", heights)


def _falls(bins: pd.DataFrame) -> bool:
    """Whether the offered mass of the highest bin of all sampled rounds lies clearly under that of the lowest."""
    pooled = bins[bins["temperature"] == ALL].sort_values("entropy")
    known = len(pooled) > 1 and pooled["prompts"].max() > 1
    return known and bool(pooled["offered_hi"].iloc[-1] < pooled["offered_lo"].iloc[0])


def draw_slowdown(split: pd.DataFrame, slice_name: str, reference: str) -> go.Figure:
    """The factor of tokens per second from the lowest to the highest temperature, as parts that multiply to it.

    Bars left of 1 cost speed, bars right of 1 give some back; the mark is the whole with its 95 % interval. Lengths are
    logarithms, so that parts add up. The title speaks of `reference`, a label. Reads what `split_slowdown` returns.
    Raises ValueError for a missing column, an empty frame, or a reference that it does not hold.
    """
    columns = ["label", "cold", "hot", *interval_columns("speed", "share_acceptance"), "clear", "prompts"]
    require(split, "split", columns)
    if reference not in set(split["label"]):
        raise ValueError(f'"{reference}" has no two temperatures in this slice; {", ".join(split["label"])} have.')
    labels = ordered_labels(set(split["label"]))
    rows = split.set_index("label").loc[labels].reset_index()
    rows["whole"] = [_slowdown_hover(row) for row in rows.to_dict("records")]
    logs = interval_columns("log_speed")
    rows[logs] = np.log(rows[interval_columns("speed")].to_numpy(dtype=float))
    figure = go.Figure().update_layout(barmode="relative")
    for part in PARTS:
        parts = rows[interval_columns(f"part_{part}")].to_numpy(dtype=float)
        factors = pd.DataFrame(np.exp(parts), columns=["factor", "low", "high"])
        add_series(
            figure,
            factors,
            rows[f"part_{part}"],
            labels,
            name=part,
            colour=PART_COLOURS[part],
            mode="bar h",
            hover=f"{{y}}: factor {{factor:.2f}} from {part} only<br>95% interval {{low:.2f}} to {{high:.2f}}",
            extra="",
        )
    mark = {"size": 9, "symbol": "diamond"}
    add_series(
        figure,
        rows,
        "log_speed",
        "label",
        name="tokens/s",
        mode="markers",
        marker=mark,
        error_x="log_speed",
        hover="{y}: {whole}",
        extra="",
    )
    stacked = rows[[f"part_{part}" for part in PARTS]]
    left = min(float(stacked.clip(upper=0).sum(axis=1).min()), float(rows["log_speed_lo"].min())) - 0.03
    right = max(float(stacked.clip(lower=0).sum(axis=1).max()), float(rows["log_speed_hi"].max())) + 0.03
    fitting = FINE_TICKS if right - left < WIDE else COARSE_TICKS
    name_rows(figure, labels)
    figure.update_xaxes(
        title=f"tokens/s at {temperature_label(rows['hot'].iloc[0])} over {temperature_label(rows['cold'].iloc[0])}",
        range=[left, right],
        tickangle=0,
        **_factor_ticks(fitting, left, right, math.log),
    )
    figure.add_vline(x=0, line={"color": INK, "width": 1})
    marks = f"Bars: {_intervals(split)}. Autoregressive drafts nothing: sampling's own cost, and drift."
    title = _slowdown_title(rows[rows["label"] == reference].iloc[0].to_dict())
    return apply_layout(figure, title, f"{marks}{_runs_with(slice_name)}", ROW * len(labels) + 12, footer=150)


def _slowdown_hover(row: Mapping[Any, Any]) -> str:
    factor = f"{row['speed']:.2f} times as fast (95% interval {row['speed_lo']:.2f} to {row['speed_hi']:.2f})"
    if not row["clear"]:
        return f"{factor}<br>{why_unclear(row)}"
    shares = f"acceptance {row['share_acceptance']:.0%}, round time {row['share_time']:.0%} of it"
    return f"{factor}<br>{shares}, {row['prompts']} prompts"


def _slowdown_title(row: Mapping[Any, Any]) -> str:
    change = f"{temperature_label(row['cold'])} to {temperature_label(row['hot'])}"
    factor = f"{capitalised(row['label'])}, {change}: {row['speed']:.2f}{TIMES} the speed"
    if not row["clear"]:
        return f"{factor}, {why_unclear(row)}"
    interval = f"{row['share_acceptance_lo']:.0%} to {row['share_acceptance_hi']:.0%}"
    noun = "loss" if row["speed"] < 1 else "gain"
    return f"{factor}, acceptance is {row['share_acceptance']:.0%} ({interval}) of the {noun}"


def _in_slice(frame: pd.DataFrame, slice_name: str) -> pd.DataFrame:
    rows = frame[frame["slice"] == slice_name]
    if rows.empty:
        known = ", ".join(f'"{name}"' for name in frame["slice"].unique())
        raise ValueError(f'There is no slice "{slice_name}" in this sweep; it has {known or "none"}.')
    return rows


def _budget(label: str) -> str:
    """What an axis of budgets says: "16" for "tree 16", "chain" for "chain"."""
    return label.removeprefix("tree ")


def _runs_with(slice_name: str) -> str:
    """A sentence for a subtitle that names the slice, "" for the only one."""
    return "" if slice_name == ONLY else f" Runs with {slice_name}."


def _intervals(frame: pd.DataFrame) -> str:
    """How the intervals came about: "95% interval over 8 prompts", or that there is none."""
    least, most = int(frame["prompts"].min()), int(frame["prompts"].max())
    if most < 2:
        return "one prompt, so no interval"
    return f"95% interval over {most if least == most else f'{least} to {most}'} prompts"
