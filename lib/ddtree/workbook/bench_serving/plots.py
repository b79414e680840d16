"""Draws the figures of 04_serving: throughput, speed-up, acceptance and the time of a round.

A server has one colour and symbol in every figure of a run, and a step cost that identity layers emulate is named so.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import NamedTuple

import pandas as pd
import plotly.graph_objects as go

from ddtree.workbook.bench_serving.summary import DDTREE, DFLASH, PLAIN, cost_name, cost_names, in_order, label
from ddtree.workbook.theme import (
    BLUE,
    FOOTER_ROOM,
    GREEN,
    GREY,
    INK,
    LEGEND_DROP,
    ORANGE,
    PURPLE,
    ROW,
    SKY,
    TIMES,
    VERMILION,
    add_series,
    apply_layout,
    describe_ends,
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

TREE_STYLES = ((BLUE, "circle"), (SKY, "square"), (GREEN, "triangle-up"), (PURPLE, "cross"), (VERMILION, "star"))
COST_GAP = 76  # pixels between panels that have their own tick labels
ROW_SPREAD, AXIS_SPREAD = 0.5, 0.04  # of a row, over which temperatures lie; of the axis, over which servers lie
SPEEDUP_HEIGHT, HISTOGRAM_HEIGHT, BAR_HEIGHT = 200, 150, 24  # pixels of a panel, a panel, a bar
SECOND_LINE = 16  # pixels of the tick labels' second line
STEP, ADDED = "a plain step", "what speculation adds"


class Style(NamedTuple):
    """How one server is drawn, in every figure of a run."""

    name: str
    label: str
    colour: str
    symbol: str


def styles(frame: pd.DataFrame) -> list[Style]:
    """The servers of `frame` (columns name, method, budget) in order; trees take the five styles in turn."""
    names = in_order(frame)
    trees = [name for name in names if name.startswith(DDTREE)]
    found = {name: TREE_STYLES[place % len(TREE_STYLES)] for place, name in enumerate(trees)}
    found[PLAIN] = (GREY, "line-ns-open")
    return [Style(name, label(name), *found.get(name, (ORANGE, "diamond"))) for name in names]


def interval_over(batch: int, units: pd.Series) -> str:
    """How an interval came about: "95% interval over 8 prompts", or that there is none."""
    what = "prompt" if batch == 1 else "repeat"
    least = int(units.min())
    return f"95% interval over {least} {what}s" if least > 1 else f"one {what}, so no interval"


def span(low: float, high: float, form: str = "{:.2f}") -> str:
    """ "1.20 to 1.45", or one number where both look the same."""
    first, last = form.format(low), form.format(high)
    return first if first == last else f"{first} to {last}"


def draw_throughput(rates: pd.DataFrame, steps: pd.DataFrame, batch: int) -> go.Figure:
    """Tokens a second with 95 % intervals at `batch`, coloured by temperature; emulated costs are named as such.

    Reads `rates` and `steps` of a Serving. Raises ValueError for a missing column or no rows at that batch.
    """
    require(rates, "rates", ["extra_layers", "temperature", "batch", "name", "tokens_per_s", "units"])
    here = rates[rates["batch"] == batch]
    require(here, f"rates at batch {batch}", ["tokens_per_s"])
    names = cost_names(steps, here["extra_layers"], short=True)
    servers, values = styles(here), temperatures(here)
    order = [style.name for style in servers]
    heights = [ROW * len(servers) + 12] * len(names)
    figure = stacked_panels(list(names.values()), heights, gap=COST_GAP, shared=False)
    for row, layers in enumerate(names, start=1):
        for number, temperature in enumerate(values):
            part = here[(here["extra_layers"] == layers) & (here["temperature"] == temperature)]
            y = part["name"].map(order.index) + jitter(number, len(values), ROW_SPREAD)
            add_series(
                figure, part, "tokens_per_s", y, name=temperature_label(temperature), mode="markers", row=row,
                colour=temperature_colour(temperature), marker={"size": 9}, error_x="tokens_per_s",
                text=part["name"].map(label).tolist(),
                hover="{text}: {x:,.0f} tokens/s ({tokens_per_s_lo:,.0f} to {tokens_per_s_hi:,.0f})<br>"
                "{over_plain:.2f} times plain"
            )  # fmt: skip
    texts = named_ticks(style.label for style in servers)
    figure.update_yaxes(range=[len(servers) - 0.5, -0.5], **texts)
    figure.update_xaxes(rangemode="tozero", nticks=6, separatethousands=True)
    figure.update_xaxes(title=f"tokens/s, batch {batch}", row=len(names), col=1)
    title, costliest = _throughput_titles(here, batch, list(names))
    bars = f"Bars: {interval_over(batch, here['units'])}."
    subtitle = f"{costliest}Whole replies, prefill included. {bars}{_explain_panels(names)}"
    return apply_layout(figure, title, subtitle, heights, gap=COST_GAP)


def _throughput_titles(here: pd.DataFrame, batch: int, costs: list[int]) -> tuple[str, str]:
    """Who is fastest at the first and last temperature: at the least cost, and in a sentence at the largest."""

    def fastest(layers: int) -> str:
        at_cost = here[here["extra_layers"] == layers].sort_values("tokens_per_s")
        best = at_cost.groupby("temperature")[["name", "tokens_per_s"]].last()
        described = best["name"].map(label) + best["tokens_per_s"].map(" ({:,.0f}/s)".format)
        return describe_ends(list(best.index), lambda temperature: described[temperature])

    emulated = f", emulated cost (+{costs[0]} layers)" if costs[0] else ""
    title = f"Fastest, batch {batch}{emulated}: {fastest(costs[0])}"
    return title, f"Fastest at the largest emulated cost: {fastest(costs[-1])}. " if len(costs) > 1 else ""


def draw_speedup(rates: pd.DataFrame, steps: pd.DataFrame, batch: int) -> go.Figure:
    """Tokens/s over plain's at `batch` with 95 % intervals, a line for each drafting server.

    The x axis is the plain engine's milliseconds a token at batch 1; costs that identity layers emulate are named.
    Reads `rates` and `steps` of a Serving. Raises ValueError for a missing column or no rows at that batch.
    """
    require(rates, "rates", ["extra_layers", "temperature", "batch", "name", "over_plain", "units"])
    here = rates[(rates["batch"] == batch) & (rates["name"] != PLAIN) & rates["over_plain"].notna()]
    require(here, f"rates over plain at batch {batch}", ["over_plain"])
    cost = dict(zip(steps["extra_layers"].astype(int), steps["step_ms"].astype(float), strict=True))
    largest = max(cost.values())
    values, servers = temperatures(here), styles(here)
    heights = [SPEEDUP_HEIGHT] * len(values)
    figure = stacked_panels([temperature_label(value) for value in values], heights)
    ordered = here.sort_values("extra_layers")
    for row, temperature in enumerate(values, start=1):
        for number, style in enumerate(servers):
            part = ordered[(ordered["temperature"] == temperature) & (ordered["name"] == style.name)]
            x = part["extra_layers"].map(cost) + jitter(number, len(servers), AXIS_SPREAD * largest)
            add_series(
                figure, part, x, "over_plain", name=style.label, colour=style.colour, row=row, group=style.name,
                line={"width": 1.5}, marker={"size": 9, "symbol": style.symbol}, error_y="over_plain",
                text=[cost_name(layers, cost[layers]) for layers in part["extra_layers"]],
                hover="{text}<br>{y:.2f} times plain ({over_plain_lo:.2f} to {over_plain_hi:.2f}), "
                "{tokens_per_s:,.0f} tokens/s", extra=f"{style.label}, {temperature_label(temperature)}"
            )  # fmt: skip
        figure.add_hline(y=1, line={"color": INK, "width": 1, "dash": "dot"}, row=row, col=1)
    figure.update_yaxes(title="over plain", nticks=6, range=[0, 1.06 * float(here["over_plain_hi"].max())])
    ticks = [f"{ms:.1f}" + (f"<br>+{layers}" if layers else "") for layers, ms in cost.items()]
    figure.update_xaxes(tickvals=list(cost.values()), ticktext=ticks, tickangle=0, range=[0, 1.08 * largest])
    emulated = "; +N: emulated cost, N layers" if max(cost) > 0 else ""
    figure.update_xaxes(title=f"ms of a plain step{emulated}", row=len(values), col=1)
    intervals = f"Bars: {interval_over(batch, here['units'])}."
    subtitle = f"Ranges: over temperatures. A plain step: its ms a token at batch 1. Dotted: plain's speed. {intervals}"
    footer, drop = FOOTER_ROOM + SECOND_LINE, LEGEND_DROP + SECOND_LINE
    title = _speedup_title(here, steps, batch)
    return apply_layout(figure, title, subtitle, heights, footer=footer, legend_drop=drop)


def _speedup_title(here: pd.DataFrame, steps: pd.DataFrame, batch: int) -> str:
    """The best DDTREE at the least and the largest cost, as a range over temperatures."""
    trees = here[here["method"] == DDTREE]
    rated, who = (trees, "Best DDTREE") if len(trees) else (here, label(str(here["name"].iloc[0])))
    best = rated.groupby(["extra_layers", "temperature"])["over_plain"].max()
    names = cost_names(steps, rated["extra_layers"])
    ranges = [
        f"{span(best[layers].min(), best[layers].max())}{TIMES} at {names[layers]}"
        for layers in sorted({min(names), max(names)})
    ]
    return f"{who} over plain, batch {batch}: {'; '.join(ranges)}"


def draw_served_acceptance(rounds: pd.DataFrame) -> go.Figure:
    """Mean tokens a round at batch 1 with 95 % intervals over prompts, a line for each server, at the least step cost.

    Reads `rounds` of a Serving. Raises ValueError for a missing column or no rows.
    """
    require(rounds, "rounds", ["extra_layers", "temperature", "name", *interval_columns("acceptance")])
    least = rounds["extra_layers"].min()
    here = rounds[rounds["extra_layers"] == least].sort_values("temperature")
    figure = go.Figure()
    for style in styles(here):
        add_series(
            figure, here[here["name"] == style.name], "temperature", "acceptance", name=style.label,
            colour=style.colour, line={"width": 1.5}, marker={"size": 9, "symbol": style.symbol}, error_y="acceptance",
            hover="T = {x:g}: {y:.2f} tokens a round ({acceptance_lo:.2f} to {acceptance_hi:.2f})"
        )  # fmt: skip
    figure.update_xaxes(title="temperature", tickvals=temperatures(here))
    figure.update_yaxes(title="tokens a round", range=[0, 1.08 * float(here["acceptance_hi"].max())])
    added = f" Model with {least} identity layers (emulated cost)." if least else ""
    subtitle = f"Accepted drafts and the final token, batch 1. Bars: 95% interval over prompts.{added}"
    best = here.sort_values("acceptance").groupby(["temperature", "method"])[["name", "acceptance"]].last()

    def both(temperature: float) -> str:
        found = [best.loc[temperature, method] for method in (DDTREE, DFLASH) if (temperature, method) in best.index]
        return ", ".join(f"{label(row['name'])} {row['acceptance']:.2f}" for row in found)

    return apply_layout(figure, f"Tokens a round: {describe_ends(temperatures(here), both, '; ')}", subtitle, 300)


def draw_served_histogram(histograms: pd.DataFrame) -> go.Figure:
    """Share of rounds by the tokens they gave, at batch 1 and the least step cost, a panel for each temperature.

    Reads `histograms` of a Serving (counts: tokens to rounds). Raises ValueError for a missing column or no rows.
    """
    require(histograms, "histograms", ["extra_layers", "temperature", "name", "method", "budget", "counts"])
    here = histograms[histograms["extra_layers"] == histograms["extra_layers"].min()]
    counts = pd.DataFrame(
        [{int(tokens): int(n) for tokens, n in row.items()} for row in here["counts"]],
        index=pd.MultiIndex.from_frame(here[["temperature", "name"]]),
    ).fillna(0)
    tokens = range(1, max(map(int, counts.columns), default=1) + 1)
    counts = counts.reindex(columns=tokens, fill_value=0).astype(int)
    counts = counts[counts.sum(axis=1) > 0]
    values, servers = temperatures(here), styles(here)
    heights = [HISTOGRAM_HEIGHT] * len(values)
    figure = stacked_panels([temperature_label(value) for value in values], heights)
    for row, temperature in enumerate(values, start=1):
        for style in [style for style in servers if (temperature, style.name) in counts.index]:
            counted = pd.DataFrame({"count": counts.T[(temperature, style.name)]})
            counted["rounds"] = counted["count"].sum()
            add_series(
                figure, counted, tokens, counted["count"] / counted["rounds"], name=style.label, colour=style.colour,
                mode="bar", row=row, group=style.name, hover="{x} tokens: {y:.1%} ({count} of {rounds} rounds)",
                extra=f"{style.label}, {temperature_label(temperature)}"
            )  # fmt: skip
    figure.update_yaxes(title="rounds", tickformat=".0%", nticks=5, rangemode="tozero")
    figure.update_xaxes(dtick=math.ceil(len(tokens) / 8), tick0=1)
    figure.update_xaxes(title="tokens of a round", row=len(values), col=1)
    subtitle = "Share of rounds by tokens given: accepted drafts and the final token."
    none = (counts[1] / counts.sum(axis=1)).xs(servers[-1].name, level="name")
    found = describe_ends(sorted(none.index), lambda temperature: f"{none[temperature]:.0%}")
    return apply_layout(figure, f"{servers[-1].label}: rounds that accepted no draft, {found}", subtitle, heights)


def draw_served_rounds(rounds: pd.DataFrame, steps: pd.DataFrame) -> go.Figure:
    """Milliseconds of a round at batch 1, stacked, a panel for each step cost; its speed-up over plain next to a bar.

    The speed-up is tokens a round times a plain step over a round, prefill left out. Reads `rounds` and `steps` of a
    Serving. Raises ValueError for a missing column or no rows.
    """
    require(rounds, "rounds", ["extra_layers", "temperature", "name", "step_ms", "round_ms", "added_ms", "acceptance"])
    names = cost_names(steps, rounds["extra_layers"], short=True)
    order = [style.name for style in styles(rounds)]
    shown = rounds.assign(
        place=rounds["name"].map(order.index),
        bar=rounds["name"].map(label) + ", " + rounds["temperature"].map(temperature_label),
        step=rounds[["step_ms", "round_ms"]].min(axis=1),
        added=rounds["added_ms"].clip(lower=0),
    ).sort_values(["place", "temperature"])
    bars = list(shown["bar"].unique())
    heights = [BAR_HEIGHT * len(bars) + 10] * len(names)
    figure = stacked_panels(list(names.values()), heights, gap=COST_GAP, shared=False)
    for row, layers in enumerate(names, start=1):
        part = shown[shown["extra_layers"] == layers]
        for name, length, colour in ((STEP, "step", GREY), (ADDED, "added", VERMILION)):
            hover = "{y}: {x:.2f} ms of a round of {round_ms:.2f} ({round_ms_lo:.2f} to {round_ms_hi:.2f}), "
            hover += "{acceptance:.2f} tokens"
            add_series(figure, part, length, "bar", name=name, colour=colour, mode="bar h", row=row, hover=hover)
        written = part["acceptance"].map(" {:.1f}, ".format) + part["decode_over_plain"].map(f"{{:.2f}}{TIMES}".format)
        add_series(
            figure, part, "round_ms", "bar", mode="text", row=row, text=written.tolist(),
            textposition="middle right", textfont={"color": INK, "size": 11}, cliponaxis=False
        )  # fmt: skip
        figure.update_xaxes(range=[0, 1.3 * float(part["round_ms"].max())], row=row)
    figure.update_layout(barmode="stack")
    name_rows(figure, bars)
    figure.update_xaxes(title="ms of a round, batch 1", row=len(names), col=1)
    added = shown.groupby("extra_layers")["added_ms"]
    long_names = cost_names(steps, rounds["extra_layers"])
    ranges = [
        f"{span(added.min()[layers], added.max()[layers], '{:.1f}')} ms at {long_names[layers]}"
        for layers in sorted({min(names), max(names)})
    ]
    subtitle = f"Next to each bar: tokens a round, then how many times plain's speed they make.{_explain_panels(names)}"
    return apply_layout(figure, f"Speculation adds {'; '.join(ranges)}", subtitle, heights, gap=COST_GAP)


def _explain_panels(costs: Collection[int]) -> str:
    """What a subtitle says of panels headed by short names of costs; "" for only the model's own cost."""
    scales = " Scales differ." if len(costs) > 1 else ""
    return f"{scales} +N: N identity layers." if max(costs) else scales
