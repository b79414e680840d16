"""Draws the figures of 03_live: speed, acceptance, stage times, calibration and the budgets chosen, with intervals.

Titles speak of the first and the last temperature, and of trees where any were measured.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ddtree.adaptive_budget import RoundCost
from ddtree.decode import FORWARDS, STAGES
from ddtree.workbook.live.calibration import DEEPEST, accepted_shares
from ddtree.workbook.theme import (
    BARE_FOOTER,
    INK,
    STAGE_COLOURS,
    SYMBOLS,
    TIMES,
    Line,
    add_series,
    apply_layout,
    capitalised,
    describe_ends,
    ends,
    interval_columns,
    label_panels,
    lines,
    require,
    stacked_panels,
    strategy_colour,
    temperature_colour,
    temperature_label,
    temperatures,
)

KEYS = ("temperature", "label", "strategy", "budget")
UNCLEAR = "(±)"  # marks a speed-up that may be none
DASHES = ("solid", "dash", "dashdot", "longdash", "longdashdot", "dot")
CHAIN_DASH, TREE_DASHES = "dot", ("solid", "dash", "longdash", "dashdot", "longdashdot")
SHADES = (1.0, 0.6, 0.35)  # opacity of the labels of one strategy
HISTOGRAM_HEIGHT, RELIABILITY_HEIGHT, BUDGET_HEIGHTS = 150, 190, (130, 190)  # pixels of panels
STAGE_COLUMNS = [f"{stage}_ms" for stage in STAGES]
OVERHEAD_COLUMNS = [f"{stage}_ms" for stage in STAGES if stage not in FORWARDS]
DEPTH_COLOURS = ("#4477AA", "#CCBB44", "#AA3377")  # none of a temperature


def draw_speed(summary: pd.DataFrame) -> go.Figure:
    """Tokens per second with 95% intervals, one panel for each temperature, the speed-up written at each point.

    Reads temperature, label, strategy, budget, and tokens_per_s and speedup, each with _lo and _hi. Raises
    ValueError for a missing column, an empty frame, or a value outside its interval.
    """
    require(summary, "summary", [*KEYS, *interval_columns("speedup")], inside=["tokens_per_s"])
    figure, heights = label_panels(summary)
    order = [line.label for line in lines(summary)]
    ordered = summary.sort_values("label", key=lambda labels: labels.map(order.index))
    for row, temperature in enumerate(temperatures(summary), start=1):
        part, where = ordered[ordered["temperature"] == temperature], temperature_label(temperature)
        colours = [strategy_colour(strategy) for strategy in part["strategy"]]
        interval = "<br>95% interval {tokens_per_s_lo:.1f} to {tokens_per_s_hi:.1f}"
        add_series(
            figure, part, "tokens_per_s", "label", colour=colours, mode="markers", row=row, marker={"size": 11},
            error_x="tokens_per_s", error_colour=INK, hover=f"{{y}}: {{x:.1f}} tokens/s{interval}", extra=where
        )  # fmt: skip
        interval = "<br>95% interval {speedup_lo:.2f} to {speedup_hi:.2f}"
        add_series(
            figure, part, "tokens_per_s_hi", "label", mode="text", row=row, textposition="middle right",
            text=[f"  {speedup:.2f}{TIMES}" for speedup in part["speedup"]], cliponaxis=False,
            hover=f"{{y}}: {{speedup:.2f}} times autoregressive{interval}", extra=where
        )  # fmt: skip
        for baseline in part.loc[part["strategy"] == "autoregressive", "tokens_per_s"]:
            figure.add_vline(x=baseline, row=row, col=1, line={"color": INK, "width": 1, "dash": "dot"})
    figure.update_xaxes(range=[0, 1.18 * float(summary["tokens_per_s_hi"].max())])
    figure.update_xaxes(title="tokens per second", row=len(heights), col=1)
    title = _speed_title(summary)
    unclear = f" {UNCLEAR}: its interval holds 1." if UNCLEAR in title else ""
    subtitle = f"Mean with 95% interval; {TIMES}: speed-up over autoregressive, same prompts.{unclear}"
    return apply_layout(figure, title, subtitle, heights, footer=BARE_FOOTER)


def _speed_title(summary: pd.DataFrame) -> str:
    drafted = _most_drafted(summary)
    if drafted.empty:
        return f"Autoregressive decoding: {summary['tokens_per_s'].mean():.1f} tokens/s"
    best = drafted.sort_values("speedup").groupby("temperature").last()
    unclear = (best["speedup_lo"] <= 1) & (best["speedup_hi"] >= 1)

    def speedup(t: float) -> str:
        return f"{best['speedup'][t]:.1f}{TIMES}{f' {UNCLEAR}' if unclear[t] else ''}"

    return f"{_named(drafted, ' decoding')}: {describe_ends(list(best.index), speedup)}"


def draw_acceptance(summary: pd.DataFrame) -> go.Figure:
    """Mean acceptance length (tokens per round) with 95% intervals against temperature, a line for each label.

    Reads temperature, label, strategy, budget, acceptance, acceptance_lo and acceptance_hi. Raises ValueError as
    `draw_speed`.
    """
    require(summary, "summary", KEYS, inside=["acceptance"])
    figure = go.Figure()
    for line in lines(summary):
        part = summary[summary["label"] == line.label].sort_values("temperature")
        interval = "<br>95% interval {acceptance_lo:.2f} to {acceptance_hi:.2f}"
        add_series(
            figure, part, "temperature", "acceptance", name=line.label, colour=strategy_colour(line.strategy),
            line={"dash": DASHES[line.place % len(DASHES)]},
            marker={"size": 9, "symbol": SYMBOLS[line.place % len(SYMBOLS)]}, error_y="acceptance",
            hover=f"T = {{x:g}}: {{y:.2f}} tokens per round{interval}"
        )  # fmt: skip
    figure.update_xaxes(title="temperature", tickvals=temperatures(summary))
    figure.update_yaxes(title="tokens per round", range=[0, 1.08 * float(summary["acceptance_hi"].max())])
    subtitle = "Mean acceptance length: accepted drafts and the final token. Bars: 95% interval."
    return apply_layout(figure, _acceptance_title(summary), subtitle, 300)


def _acceptance_title(summary: pd.DataFrame) -> str:
    drafted = _most_drafted(summary)
    if drafted.empty:
        return "Autoregressive decoding: 1 token a round"
    most = drafted.groupby("temperature")["acceptance"].max()
    said = describe_ends(list(most.index), lambda t: f"{most[t]:.1f}{' tokens a round' if t == most.index[0] else ''}")
    return f"{_named(drafted)}: {said}"


def _most_drafted(summary: pd.DataFrame) -> pd.DataFrame:
    """The rows a title speaks of: trees, or chains where there are none."""
    trees = summary[summary["strategy"] == "tree"]
    return summary[summary["strategy"] == "chain"] if trees.empty else trees


def _named(drafted: pd.DataFrame, noun: str = "") -> str:
    """ "Tree" or "Chain" with its noun, or "Best tree" where the largest of several is quoted."""
    name = str(drafted["strategy"].iloc[0])
    return f"Best {name}" if drafted["label"].nunique() > 1 else f"{name.capitalize()}{noun}"


def draw_acceptance_by_depth(rounds: pd.DataFrame) -> go.Figure:
    """Share of rounds that accepted at least d drafts, d = 1, 2, ..., with Wilson 95% intervals.

    One line for each temperature (colour) and label (dash: chains dotted); autoregressive rounds, which draft
    nothing, are left out. The intervals take rounds as independent. Reads temperature, label, strategy, budget and
    accepted. Raises ValueError for a missing column or no drafted round.
    """
    require(rounds, "rounds", [*KEYS, "accepted"])
    drafted = _drafted(rounds)
    depths = range(1, max(1, int(drafted["accepted"].max())) + 1)
    figure = go.Figure()
    for temperature, line, part in _cells(drafted):
        chain = line.strategy == "chain"
        add_series(
            figure, _shares_accepted(part["accepted"], depths), depths, "share",
            name=f"{temperature_label(temperature)}, {line.label}", colour=temperature_colour(temperature),
            line={"dash": CHAIN_DASH if chain else TREE_DASHES[line.place % len(TREE_DASHES)]},
            marker={"size": 7, "symbol": "diamond" if chain else "circle"}, error_y="share",
            hover="{x} or more drafts: {y:.1%} ({count} of {rounds} rounds)<br>"
            "95% interval {share_lo:.1%} to {share_hi:.1%}"
        )  # fmt: skip
    span = [0.6, len(depths) + 0.4]
    figure.update_xaxes(title="d, drafts accepted in a round", dtick=math.ceil(len(depths) / 8), tick0=1, range=span)
    figure.update_yaxes(title="rounds that accepted d or more", tickformat=".0%", range=[0, 1.03])
    part = _largest_tree(drafted)
    any_accepted = (part["accepted"] >= 1).groupby(part["temperature"]).mean()
    found = describe_ends(list(any_accepted.index), lambda t: f"{any_accepted[t]:.0%}")
    label = capitalised(part["label"].iloc[0])
    subtitle = "Share of rounds that accepted at least d drafts. Bars: Wilson 95% interval."
    return apply_layout(figure, f"{label}: a draft accepted in {found}", subtitle, 320)


def _shares_accepted(accepted: pd.Series, depths: range) -> pd.DataFrame:
    """Columns count, rounds and share with its Wilson interval: of rounds that accepted each depth or more."""
    counts = [int((accepted >= d).sum()) for d in depths]
    found = accepted_shares(counts, [len(accepted)] * len(counts))
    return found.assign(count=counts, rounds=len(accepted)).astype({"count": object, "rounds": object})


def draw_histogram(rounds: pd.DataFrame) -> go.Figure:
    """Distribution of tokens emitted per round, chain next to tree, one panel for each temperature.

    Autoregressive rounds, always of 1 token, are left out. Reads temperature, label, strategy, budget and emitted.
    Raises ValueError for a missing column or no drafted round.
    """
    require(rounds, "rounds", [*KEYS, "emitted"])
    drafted = _drafted(rounds)
    values = temperatures(drafted)
    heights = [HISTOGRAM_HEIGHT] * len(values)
    figure = stacked_panels([temperature_label(value) for value in values], heights)
    tokens = range(int(drafted["emitted"].min()), int(drafted["emitted"].max()) + 1)
    highest = 0.0
    for temperature, line, part in _cells(drafted):
        counted = part["emitted"].value_counts().reindex(tokens, fill_value=0).to_frame("count")
        shares = counted["count"] / len(part)
        highest = max(highest, float(shares.max()))
        add_series(
            figure, counted.assign(rounds=len(part)), tokens, shares, name=line.label, mode="bar",
            colour=strategy_colour(line.strategy), row=values.index(temperature) + 1,
            opacity=SHADES[line.place % len(SHADES)], hover="{x} tokens: {y:.1%} ({count} of {rounds} rounds)",
            extra=f"{temperature_label(temperature)}, {line.label}"
        )  # fmt: skip
    figure.update_yaxes(title="rounds", tickformat=".0%", range=[0, 1.08 * highest], nticks=5)
    figure.update_xaxes(dtick=math.ceil(len(tokens) / 8), tick0=1)
    figure.update_xaxes(title="tokens emitted in a round", row=len(values), col=1)
    title, others = _tail_title(drafted)
    return apply_layout(figure, title, f"{others}Tokens kept: accepted drafts and the final token.", heights)


def _tail_title(drafted: pd.DataFrame) -> tuple[str, str]:
    """Title and first sentence of the subtitle: who reaches the median of the lowest temperature's largest tree.

    Other trees, larger ones too, may have been measured only at the highest temperature.
    """
    first, *last = ends(temperatures(drafted))
    reached = math.ceil(_largest_tree(drafted[drafted["temperature"] == first])["emitted"].median())

    def shares(temperature: float) -> str:
        here = drafted[drafted["temperature"] == temperature]
        by_label = (here["emitted"] >= reached).groupby(here["label"]).mean()
        return ", ".join(f"{line.label} {by_label[line.label]:.0%}" for line in reversed(lines(here)))

    title = f"Rounds of {reached} tokens or more at {temperature_label(first)}: {shares(first)}"
    return title, "".join(f"At {temperature_label(t)}: {shares(t)}. " for t in last)


def draw_stage_times(rounds: pd.DataFrame) -> go.Figure:
    """Mean milliseconds per round by stage, stacked, one panel for each temperature and a bar for each label.

    The two model passes are muted, the stages of overhead coloured; the end of a bar tells its total and the share
    of overhead. Reads temperature, label, strategy, budget and one column "<stage>_ms" for each of
    `ddtree.decode.STAGES`. Raises ValueError for a missing column or an empty frame.
    """
    require(rounds, "rounds", [*KEYS, *STAGE_COLUMNS])
    figure, heights = label_panels(rounds)
    for row, temperature in enumerate(temperatures(rounds), start=1):
        means = rounds[rounds["temperature"] == temperature].groupby("label")[STAGE_COLUMNS].mean()
        for stage in STAGES:
            add_series(
                figure, means, f"{stage}_ms", means.index, name=f"{stage} (model)" if stage in FORWARDS else stage,
                colour=STAGE_COLOURS[stage], mode="bar h", row=row, group=stage,
                hover=f"{{y}}: {stage} {{x:.2f}} ms", extra=temperature_label(temperature)
            )  # fmt: skip
        totals = means.sum(axis=1)
        overhead = means[OVERHEAD_COLUMNS].sum(axis=1) / totals
        written = [f" {total:.0f} ms, {share:.0%}" for total, share in zip(totals, overhead, strict=True)]
        style: dict[str, Any] = {"textposition": "middle right", "text": written}
        add_series(figure, means, totals, means.index, mode="text", row=row, **style)
    longest = rounds.groupby(["temperature", "label"])[STAGE_COLUMNS].mean().sum(axis=1).max()
    figure.update_xaxes(range=[0, 1.38 * float(longest)])
    figure.update_xaxes(title="mean time per round (ms)", row=len(heights), col=1)
    figure.update_layout(barmode="stack")
    title, largest = _time_title(rounds)
    return apply_layout(figure, title, f"{largest} At the bars: total, and the share that is overhead.", heights)


def _time_title(rounds: pd.DataFrame) -> tuple[str, str]:
    """Title and the first line of the subtitle, from all rounds of the largest tree."""
    part = _largest_tree(rounds)
    means = part[STAGE_COLUMNS].mean()
    shares, overhead = means / means.sum(), means[OVERHEAD_COLUMNS]
    largest, costly = str(means.idxmax()), str(overhead.idxmax())
    label, share = capitalised(part["label"].iloc[0]), shares[OVERHEAD_COLUMNS].sum()
    title = f"{label}: overhead {share:.0%} of a round, {largest.removesuffix('_ms')} {shares[largest]:.0%}"
    return title, f"Largest stage of overhead: {costly.removesuffix('_ms')}, {overhead[costly]:.2f} ms a round."


def _drafted(rounds: pd.DataFrame) -> pd.DataFrame:
    drafted = rounds[rounds["strategy"] != "autoregressive"]
    if drafted.empty:
        raise ValueError("rounds has only autoregressive rounds; this figure needs rounds of a chain or a tree.")
    return drafted


def _cells(rounds: pd.DataFrame) -> list[tuple[float, Line, pd.DataFrame]]:
    """Temperature, label and rounds of each setting, ordered by both."""
    by_setting = dict(list(rounds.groupby(["temperature", "label"])))
    settings = [(temperature, line) for temperature in temperatures(rounds) for line in lines(rounds)]
    return [(t, line, by_setting[t, line.label]) for t, line in settings if (t, line.label) in by_setting]


def _largest_tree(rounds: pd.DataFrame) -> pd.DataFrame:
    """The rounds a title speaks of: of the largest tree, else of the chain, else autoregressive."""
    return rounds[rounds["label"] == lines(rounds)[-1].label]


def draw_reliability(table: pd.DataFrame) -> go.Figure:
    """Share accepted against mean draft probability with Wilson 95% intervals, one panel for each temperature.

    Reads what `calibration.reliability` returns. On the diagonal the drafter's probability is the acceptance; above it
    the drafter underestimates it. Raises ValueError for a missing column or an empty frame.
    """
    require(table, "table", ["temperature", "depth", "draft", "n", "accepted", *interval_columns("share")])
    values = temperatures(table)
    heights = [RELIABILITY_HEIGHT] * len(values)
    figure = stacked_panels([temperature_label(value) for value in values], heights)
    for row, temperature in enumerate(values, start=1):
        add_series(figure, table, [0, 1], [0, 1], mode="lines", row=row, line={"dash": "dot"})
        here = table[table["temperature"] == temperature].sort_values("draft")
        for depth in sorted(map(int, here["depth"].unique())):
            part = here[here["depth"] == depth]
            style = (depth - 1) % len(DEPTH_COLOURS)
            add_series(
                figure, part, "draft", "share", colour=DEPTH_COLOURS[style], row=row, line={"width": 1},
                name=f"depth {depth} and deeper" if depth == DEEPEST else f"depth {depth}",
                marker={"size": 8, "symbol": SYMBOLS[style]}, error_y="share",
                hover="draft probability {x:.2f}: {y:.0%} accepted ({accepted:.0f} of {n:.0f})<br>"
                "95% interval {share_lo:.0%} to {share_hi:.0%}"
            )  # fmt: skip
    figure.update_xaxes(range=[0, 1.02])
    figure.update_xaxes(title="probability given by the drafter", row=len(values), col=1)
    figure.update_yaxes(range=[-0.02, 1.05], tickformat=".0%", title="accepted")
    sums = table.assign(predicted=table["draft"] * table["n"]).groupby("temperature").sum()
    shares = sums[["predicted", "accepted"]].div(sums["n"], axis=0)

    def compared(t: float) -> str:
        return f"{shares['predicted'][t]:.0%} predicted, {shares['accepted'][t]:.0%} accepted"

    title = f"Drafter's probabilities: {describe_ends(values, compared, '; ')}"
    subtitle = "Nodes whose parent was accepted. Dotted: perfect calibration. Bars: Wilson 95% interval."
    return apply_layout(figure, title, subtitle, heights)


def draw_budget_choices(rounds: pd.DataFrame, cost: RoundCost) -> go.Figure:
    """Milliseconds of a round by budget, and the share of rounds that chose at most so many nodes.

    `rounds` are those of settings with the budget "auto"; reads temperature and tree_size. Raises ValueError for a
    missing column or no round.
    """
    require(rounds, "rounds", ["temperature", "tree_size"])
    figure = stacked_panels(["what a round costs", "what was chosen"], BUDGET_HEIGHTS)
    marker, hover = {"size": 7}, "budget {x}: {y:.1f} ms a round"
    add_series(figure, rounds, cost.budgets, cost.ms, row=1, marker=marker, hover=hover)
    budgets = np.arange(cost.budgets[-1] + 1)
    nodes = (rounds["tree_size"] - 1).groupby(rounds["temperature"])
    for temperature, chosen in nodes:
        shares = (chosen.to_numpy()[:, None] <= budgets).mean(axis=0).tolist()
        name = temperature_label(temperature)
        hover = f"{{y:.0%}} of {len(chosen)} rounds chose {{x}} nodes or fewer"
        add_series(
            figure, rounds, budgets.tolist(), shares, name=name, row=2, mode="lines", line={"shape": "hv"},
            colour=temperature_colour(temperature), hover=hover
        )  # fmt: skip
    figure.update_yaxes(title="ms", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(title="rounds", tickformat=".0%", range=[0, 1.03], row=2, col=1)
    figure.update_xaxes(title="nodes in addition to the root", row=2, col=1)
    medians = nodes.median()
    found = describe_ends(list(medians.index), lambda t: f"{medians[t]:g} nodes")
    subtitle = "Above: median of whole rounds at each budget. Below: rounds that chose so many nodes or fewer."
    return apply_layout(figure, f"Budget chosen (median): {found}", subtitle, BUDGET_HEIGHTS)
