"""Figures of 04_serving: throughput, speed-up, acceptance and the time of a round, a panel for each step cost."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ddtree.workbook.bench.plots import EVERY_LINE, bars_of, panels
from ddtree.workbook.bench_serving.summary import DDTREE, DFLASH, PLAIN, cost_name, cost_names, in_order, label
from ddtree.workbook.theme import (
    BLUE,
    FOOTER_ROOM,
    GREEN,
    GREY,
    HEADER,
    INK,
    LEGEND_DROP,
    ORANGE,
    PANEL_GAP,
    PURPLE,
    SKY,
    TIMES,
    VERMILION,
    at,
    dress,
    dress_panels,
    first_and_last,
    for_phone,
    require,
    temperature_colour,
    temperatures,
)

TREE_LOOKS = ((BLUE, "circle"), (SKY, "square"), (GREEN, "triangle-up"), (PURPLE, "cross"), (VERMILION, "star"))

COST_GAP = 76  # pixels between panels that have tick labels of their own


class Look(NamedTuple):
    """How one server is drawn, in every figure of a run."""

    name: str
    label: str
    colour: str
    symbol: str


def looks(frame: pd.DataFrame) -> list[Look]:
    """The servers of `frame` (columns name, method, budget) in order; trees take turns with the five looks."""
    found: list[Look] = []
    trees = 0
    for name in in_order(frame):
        if name.startswith(DDTREE):
            colour, symbol = TREE_LOOKS[trees % len(TREE_LOOKS)]
            trees += 1
        else:
            colour, symbol = (GREY, "line-ns-open") if name == "plain" else (ORANGE, "diamond")
        found.append(Look(name, label(name), colour, symbol))
    return found


def cost_panels(headings: Sequence[str], heights: Sequence[int]) -> go.Figure:
    """Panels of the given pixel heights above one another, each with an x axis of its own, headed at the left."""
    total = sum(heights) + COST_GAP * (len(heights) - 1)
    figure = make_subplots(
        rows=len(headings),
        cols=1,
        row_heights=list(heights),
        vertical_spacing=COST_GAP / total if len(heights) > 1 else 0,
        subplot_titles=list(headings),
    )
    return figure.update_annotations(x=0, xanchor="left", font={"size": 13})


def dress_cost_panels(figure: go.Figure, title: str, subtitle: str, heights: Sequence[int]) -> go.Figure:
    """`dress` for `cost_panels`, titles broken for a phone."""
    total = sum(heights) + COST_GAP * (len(heights) - 1)
    title, subtitle = for_phone(title, subtitle)
    return dress(figure, title=title, subtitle=subtitle, plot_height=total, header=HEADER)


def places_apart(number: int, of: int, room: float) -> float:
    """The shift of one of several marks that share a place, all within `room` around it."""
    return room * (number / (of - 1) - 0.5) if of > 1 else 0.0


def interval_over(batch: int, units: pd.Series) -> str:
    """How an interval came about: "95% interval over 8 prompts", or that there is none."""
    what = "prompt" if batch == 1 else "repeat"
    least = int(units.min())
    return f"95% interval over {least} {what}s" if least > 1 else f"one {what}, so no interval"


def on_panels(costs: Collection[int]) -> str:
    """What a subtitle says of panels headed by short names of costs; "" for the model's own cost alone."""
    scales = " Scales differ." if len(costs) > 1 else ""
    return f"{scales} +N: N identity layers." if max(costs) else scales


def best_at(rated: pd.DataFrame, value: str, temperature: float) -> pd.Series:
    """The row with the largest `value` at a temperature."""
    return rated[rated["temperature"] == temperature].sort_values(value).iloc[-1]


def span(low: float, high: float, form: str = "{:.2f}") -> str:
    """ "1.20 to 1.45", or one number where both look the same."""
    first, last = form.format(low), form.format(high)
    return first if first == last else f"{first} to {last}"


SERVER_HEIGHT = 34  # pixels of a server
ROW_SPREAD = 0.5  # of a row, over which the temperatures stand


def draw_throughput(rates: pd.DataFrame, steps: pd.DataFrame, batch: int) -> go.Figure:
    """Tokens a second with 95 % intervals at `batch`, coloured by temperature; emulated costs are named as such.

    Reads `rates` and `steps` of a Serving. Raises ValueError for a missing column or no rows at that batch.
    """
    require(rates, "rates", ["extra_layers", "temperature", "batch", "name", "tokens_per_s", "units"])
    here = rates[rates["batch"] == batch]
    require(here, f"rates at batch {batch}", ["tokens_per_s"])
    names = cost_names(steps, here["extra_layers"], short=True)
    servers, values = looks(here), temperatures(here)
    heights = [SERVER_HEIGHT * len(servers) + 12] * len(names)
    figure = cost_panels(list(names.values()), heights)
    rows = {look.name: number for number, look in enumerate(servers)}
    for row, layers in enumerate(names, start=1):
        for number, temperature in enumerate(values):
            part = here[(here["extra_layers"] == layers) & (here["temperature"] == temperature)]
            shift = places_apart(number, len(values), ROW_SPREAD)
            figure.add_scatter(
                x=part["tokens_per_s"].tolist(),
                y=[rows[name] + shift for name in part["name"]],
                mode="markers",
                name=at(temperature),
                legendgroup=at(temperature),
                showlegend=row == 1,
                marker={"color": temperature_colour(temperature), "size": 9},
                error_x=bars_of(part, "tokens_per_s", temperature_colour(temperature)),
                text=[label(name) for name in part["name"]],
                customdata=part[["tokens_per_s_lo", "tokens_per_s_hi", "over_plain"]].to_numpy().tolist(),
                hovertemplate="%{text}: %{x:,.0f} tokens/s (%{customdata[0]:,.0f} to %{customdata[1]:,.0f})<br>"
                f"%{{customdata[2]:.2f}} times plain<extra>{at(temperature)}</extra>",
                row=row,
                col=1,
            )
    texts = {"tickvals": list(range(len(servers))), "ticktext": [look.label for look in servers]}
    figure.update_yaxes(range=[len(servers) - 0.5, -0.5], **texts)
    figure.update_xaxes(rangemode="tozero", nticks=6, separatethousands=True)
    figure.update_xaxes(title=f"tokens/s, batch {batch}", row=len(names), col=1)
    title, costliest = _throughput_finding(here, batch, list(names))
    bars = f"Bars: {interval_over(batch, here['units'])}."
    subtitle = f"{costliest}Whole replies, prefill included. {bars}{on_panels(names)}"
    return dress_cost_panels(figure, title, subtitle, heights)


def _throughput_finding(here: pd.DataFrame, batch: int, costs: list[int]) -> tuple[str, str]:
    """Who is fastest at the first and last temperature: at the least cost, and in a sentence at the largest."""

    def fastest(layers: int) -> str:
        at_cost = here[here["extra_layers"] == layers]
        found = [(t, best_at(at_cost, "tokens_per_s", t)) for t in first_and_last(temperatures(at_cost))]
        return ", ".join(f"{label(best['name'])} ({best['tokens_per_s']:,.0f}/s) at {at(t)}" for t, best in found)

    emulated = f", emulated cost (+{costs[0]} layers)" if costs[0] else ""
    title = f"Fastest, batch {batch}{emulated}: {fastest(costs[0])}"
    if len(costs) == 1:
        return title, ""
    return title, f"Fastest at the largest emulated cost: {fastest(costs[-1])}. "


SPEEDUP_HEIGHT = 200  # pixels of a panel
SECOND_LINE = 16  # pixels of the tick labels' second line
AXIS_SPREAD = 0.04  # of the axis, over which servers of one cost stand


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
    values, servers = temperatures(here), looks(here)
    heights = [SPEEDUP_HEIGHT] * len(values)
    figure = panels([at(value) for value in values], heights)
    for row, temperature in enumerate(values, start=1):
        for number, look in enumerate(servers):
            part = here[(here["temperature"] == temperature) & (here["name"] == look.name)].sort_values("extra_layers")
            shift = places_apart(number, len(servers), AXIS_SPREAD * largest)
            figure.add_scatter(
                x=[cost[layers] + shift for layers in part["extra_layers"]],
                y=part["over_plain"].tolist(),
                mode="lines+markers",
                name=look.label,
                legendgroup=look.name,
                showlegend=row == 1,
                line={"color": look.colour, "width": 1.5},
                marker={"color": look.colour, "size": 9, "symbol": look.symbol},
                error_y=bars_of(part, "over_plain", look.colour),
                text=[cost_name(layers, cost[layers]) for layers in part["extra_layers"]],
                customdata=part[["over_plain_lo", "over_plain_hi", "tokens_per_s"]].to_numpy().tolist(),
                hovertemplate="%{text}<br>%{y:.2f} times plain (%{customdata[0]:.2f} to %{customdata[1]:.2f}), "
                f"%{{customdata[2]:,.0f}} tokens/s<extra>{look.label}, {at(temperature)}</extra>",
                row=row,
                col=1,
            )
        figure.add_hline(y=1, line={"color": INK, "width": 1, "dash": "dot"}, row=row, col=1)
    figure.update_yaxes(title="over plain", nticks=6, range=[0, 1.06 * float(here["over_plain_hi"].max())])
    ticks = [f"{ms:.1f}" + (f"<br>+{layers}" if layers else "") for layers, ms in cost.items()]
    figure.update_xaxes(tickvals=list(cost.values()), ticktext=ticks, tickangle=0, range=[0, 1.08 * largest])
    emulated = "; +N: emulated cost, N layers" if max(cost) > 0 else ""
    figure.update_xaxes(title=f"ms of a plain step{emulated}", row=len(values), col=1)
    intervals = f"Bars: {interval_over(batch, here['units'])}."
    subtitle = f"Ranges: over temperatures. A plain step: its ms a token at batch 1. Dotted: plain's speed. {intervals}"
    title, subtitle = for_phone(_speedup_finding(here, steps, batch), subtitle)
    return dress(
        figure,
        title=title,
        subtitle=subtitle,
        plot_height=sum(heights) + PANEL_GAP * (len(heights) - 1),
        header=HEADER,
        footer=FOOTER_ROOM + SECOND_LINE,
        legend_drop=LEGEND_DROP + SECOND_LINE,
    )


def _speedup_finding(here: pd.DataFrame, steps: pd.DataFrame, batch: int) -> str:
    """The best DDTREE at the least and the largest cost, as a range over temperatures."""
    trees = here[here["method"] == DDTREE]
    rated, who = (trees, "Best DDTREE") if len(trees) else (here, label(str(here["name"].iloc[0])))
    names = cost_names(steps, rated["extra_layers"])
    said = []
    for layers in dict.fromkeys((min(names), max(names))):
        best = rated[rated["extra_layers"] == layers].groupby("temperature")["over_plain"].max()
        said.append(f"{span(best.min(), best.max())}{TIMES} at {names[layers]}")
    return f"{who} over plain, batch {batch}: {'; '.join(said)}"


ACCEPTANCE_HEIGHT = 150  # pixels of a panel


def draw_served_acceptance(rounds: pd.DataFrame) -> go.Figure:
    """Mean tokens a round at batch 1 with 95 % intervals over prompts, a line for each server, at the least step cost.

    Reads `rounds` of a Serving. Raises ValueError for a missing column or no rows.
    """
    require(rounds, "rounds", ["extra_layers", "temperature", "name", "acceptance", "acceptance_lo", "acceptance_hi"])
    least = rounds["extra_layers"].min()
    here = rounds[rounds["extra_layers"] == least]
    figure = go.Figure()
    for look in looks(here):
        part = here[here["name"] == look.name].sort_values("temperature")
        figure.add_scatter(
            x=part["temperature"].tolist(),
            y=part["acceptance"].tolist(),
            mode="lines+markers",
            name=look.label,
            line={"color": look.colour, "width": 1.5},
            marker={"color": look.colour, "size": 9, "symbol": look.symbol},
            error_y=bars_of(part, "acceptance", look.colour),
            customdata=part[["acceptance_lo", "acceptance_hi"]].to_numpy().tolist(),
            hovertemplate="T = %{x:g}: %{y:.2f} tokens a round (%{customdata[0]:.2f} to %{customdata[1]:.2f})"
            f"<extra>{look.label}</extra>",
        )
    figure.update_xaxes(title="temperature", tickvals=temperatures(here))
    figure.update_yaxes(title="tokens a round", range=[0, 1.08 * float(here["acceptance_hi"].max())])
    added = f" Model with {least} identity layers (emulated cost)." if least else ""
    subtitle = f"Accepted drafts and the final token, batch 1. Bars: 95% interval over prompts.{added}"
    title, subtitle = for_phone(_acceptance_finding(here), subtitle)
    return dress(figure, title=title, subtitle=subtitle, plot_height=300)


def draw_served_histogram(histograms: pd.DataFrame) -> go.Figure:
    """Share of rounds by the tokens they gave, at batch 1 and the least step cost, a panel for each temperature.

    Reads `histograms` of a Serving (counts: tokens to rounds). Raises ValueError for a missing column or no rows.
    """
    require(histograms, "histograms", ["extra_layers", "temperature", "name", "method", "budget", "counts"])
    here = histograms[histograms["extra_layers"] == histograms["extra_layers"].min()]
    counted = {
        (row["temperature"], row["name"]): {int(tokens): int(n) for tokens, n in row["counts"].items()}
        for row in here.to_dict("records")
    }
    tokens = list(range(1, max(max(counts, default=1) for counts in counted.values()) + 1))
    values = temperatures(here)
    heights = [ACCEPTANCE_HEIGHT] * len(values)
    figure = panels([at(value) for value in values], heights)
    for row, temperature in enumerate(values, start=1):
        for look in looks(here):
            counts = counted.get((temperature, look.name), {})
            total = sum(counts.values())
            if not total:
                continue
            figure.add_bar(
                x=tokens,
                y=[counts.get(number, 0) / total for number in tokens],
                name=look.label,
                legendgroup=look.name,
                showlegend=row == 1,
                marker={"color": look.colour},
                customdata=[[counts.get(number, 0), total] for number in tokens],
                hovertemplate="%{x} tokens: %{y:.1%} (%{customdata[0]} of %{customdata[1]} rounds)"
                f"<extra>{look.label}, {at(temperature)}</extra>",
                row=row,
                col=1,
            )
    figure.update_yaxes(title="rounds", tickformat=".0%", nticks=5, rangemode="tozero")
    figure.update_xaxes(dtick=math.ceil(len(tokens) / 8), tick0=1)
    figure.update_xaxes(title="tokens of a round", row=len(values), col=1)
    subtitle = "Share of rounds by tokens given: accepted drafts and the final token."
    return dress_panels(figure, _tail(counted, values, looks(here)[-1].name), subtitle, heights, legend=True)


def _acceptance_finding(here: pd.DataFrame) -> str:
    """The best DDTREE and DFLASH at the first and last temperature."""
    said = []
    for temperature in first_and_last(temperatures(here)):
        parts = []
        for method in (DDTREE, DFLASH):
            rows = here[(here["method"] == method) & (here["temperature"] == temperature)]
            if len(rows):
                best = best_at(rows, "acceptance", temperature)
                parts.append(f"{label(best['name'])} {best['acceptance']:.2f}")
        said.append(f"{', '.join(parts)} at {at(temperature)}")
    return f"Tokens a round: {'; '.join(said)}"


def _tail(counted: dict[tuple[float, str], dict[int, int]], values: list[float], name: str) -> str:
    """In how many rounds the last server accepted nothing, at the first and last temperature."""
    said = []
    for temperature in first_and_last(values):
        counts = counted.get((temperature, name), {})
        if counts:
            said.append(f"{counts.get(1, 0) / sum(counts.values()):.0%} at {at(temperature)}")
    return f"{label(name)}: rounds that accepted no draft, {', '.join(said)}"


BAR_HEIGHT = 24  # pixels of a bar
STEP, ADDED = "a plain step", "what speculation adds"


def draw_served_rounds(rounds: pd.DataFrame, steps: pd.DataFrame) -> go.Figure:
    """Milliseconds of a round at batch 1, stacked, a panel for each step cost; beside each bar its speed-up over plain.

    The speed-up is tokens a round times a plain step over a round, prefill left out. Reads `rounds` and `steps` of a
    Serving. Raises ValueError for a missing column or no rows.
    """
    require(rounds, "rounds", ["extra_layers", "temperature", "name", "step_ms", "round_ms", "added_ms", "acceptance"])
    names = cost_names(steps, rounds["extra_layers"], short=True)
    order = {look.name: (place, look.label) for place, look in enumerate(looks(rounds))}
    shown = rounds.assign(
        place=[order[name][0] for name in rounds["name"]],
        bar=[f"{order[r['name']][1]}, {at(r['temperature'])}" for r in rounds.to_dict("records")],
    ).sort_values(["place", "temperature"])
    bars = list(dict.fromkeys(shown["bar"]))
    heights = [BAR_HEIGHT * len(bars) + 10] * len(names)
    figure = cost_panels(list(names.values()), heights)
    for row, layers in enumerate(names, start=1):
        _add_panel(figure, shown[shown["extra_layers"] == layers], row)
        figure.update_xaxes(
            range=[0, 1.3 * float(shown.loc[shown["extra_layers"] == layers, "round_ms"].max())], row=row
        )
    figure.update_layout(barmode="stack")
    figure.update_yaxes(categoryorder="array", categoryarray=bars, range=[len(bars) - 0.5, -0.5], **EVERY_LINE)
    figure.update_xaxes(title="ms of a round, batch 1", row=len(names), col=1)
    subtitle = f"Beside each bar: tokens a round, then how many times plain's speed they make.{on_panels(names)}"
    title = _rounds_finding(shown, cost_names(steps, rounds["extra_layers"]))
    return dress_cost_panels(figure, title, subtitle, heights)


def _add_panel(figure: go.Figure, part: pd.DataFrame, row: int) -> None:
    rows = part.to_dict("records")
    details = [[r["round_ms"], r["round_ms_lo"], r["round_ms_hi"], r["acceptance"]] for r in rows]
    lengths = {
        STEP: (part[["step_ms", "round_ms"]].min(axis=1), GREY),
        ADDED: (part["added_ms"].clip(lower=0), VERMILION),
    }
    for name, (length, colour) in lengths.items():
        figure.add_bar(
            x=length.tolist(),
            y=part["bar"].tolist(),
            orientation="h",
            name=name,
            legendgroup=name,
            showlegend=row == 1,
            marker={"color": colour},
            customdata=details,
            hovertemplate="%{y}: %{x:.2f} ms of a round of %{customdata[0]:.2f} (%{customdata[1]:.2f} to "
            f"%{{customdata[2]:.2f}}), %{{customdata[3]:.2f}} tokens<extra>{name}</extra>",
            row=row,
            col=1,
        )
    figure.add_scatter(
        x=part["round_ms"].tolist(),
        y=part["bar"].tolist(),
        mode="text",
        text=[f" {r['acceptance']:.1f}, {r['decode_over_plain']:.2f}{TIMES}" for r in rows],
        textposition="middle right",
        textfont={"color": INK, "size": 11},
        showlegend=False,
        cliponaxis=False,
        hoverinfo="skip",
        row=row,
        col=1,
    )


def _rounds_finding(shown: pd.DataFrame, names: dict[int, str]) -> str:
    """What speculation adds to a plain step at the least and the largest cost."""
    said = []
    for layers in dict.fromkeys((min(names), max(names))):
        added = shown.loc[shown["extra_layers"] == layers, "added_ms"]
        said.append(f"{span(added.min(), added.max(), '{:.1f}')} ms at {names[layers]}")
    return f"Speculation adds {'; '.join(said)}"
