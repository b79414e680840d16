"""What happened round by round, from the `rounds` frame: depth of acceptance, tokens emitted, time by stage."""

from __future__ import annotations

import math

import pandas as pd
import plotly.graph_objects as go
from scipy.stats import binomtest

from ddtree.decode import FORWARDS, STAGES
from ddtree.workbook.plots.frames import at, first_and_last, lines, require, temperatures
from ddtree.workbook.plots.panels import dress_panels, label_panels, stacked_panels
from ddtree.workbook.plots.theme import STAGE_COLOURS, dress, for_phone, strategy_colour, temperature_colour

KEYS = ("temperature", "label", "strategy", "budget")
CHAIN_DASH, TREE_DASHES = "dot", ("solid", "dash", "longdash", "dashdot", "longdashdot")
SHADES = (1.0, 0.6, 0.35)  # opacity of the labels of one strategy
HISTOGRAM_HEIGHT = 150  # pixels of a panel


def draw_acceptance_by_depth(rounds: pd.DataFrame) -> go.Figure:
    """Share of rounds that accepted at least d drafts, d = 1, 2, ..., with Wilson 95% intervals.

    One line for each temperature (colour) and label (dash: chains dotted); autoregressive rounds, which draft
    nothing, are left out. The intervals take rounds as independent. Reads temperature, label, strategy, budget and
    accepted. Raises ValueError for a missing column or no drafted round.
    """
    require(rounds, "rounds", [*KEYS, "accepted"])
    drafted = _drafted(rounds)
    depths = list(range(1, max(1, int(drafted["accepted"].max())) + 1))
    figure = go.Figure()
    for temperature in temperatures(drafted):
        colour = temperature_colour(temperature)
        for line in lines(drafted):
            accepted = drafted.loc[_cell(drafted, temperature, line.label), "accepted"]
            if accepted.empty:
                continue
            counts = [int((accepted >= d).sum()) for d in depths]
            n = len(accepted)
            shares = [count / n for count in counts]
            bounds = [binomtest(count, n).proportion_ci(0.95, method="wilson") for count in counts]
            name = f"{at(temperature)}, {line.label}"
            dash = CHAIN_DASH if line.strategy == "chain" else TREE_DASHES[line.place % len(TREE_DASHES)]
            figure.add_scatter(
                x=depths,
                y=shares,
                mode="lines+markers",
                name=name,
                line={"color": colour, "width": 2, "dash": dash},
                marker={"color": colour, "size": 7, "symbol": "diamond" if line.strategy == "chain" else "circle"},
                error_y={
                    "type": "data",
                    "symmetric": False,
                    "array": [max(0.0, bound.high - share) for bound, share in zip(bounds, shares, strict=True)],
                    "arrayminus": [max(0.0, share - bound.low) for bound, share in zip(bounds, shares, strict=True)],
                    "color": colour,
                    "thickness": 1.2,
                    "width": 4,
                },
                customdata=[[count, n, bound.low, bound.high] for count, bound in zip(counts, bounds, strict=True)],
                hovertemplate="%{x} or more drafts: %{y:.1%} (%{customdata[0]} of %{customdata[1]} rounds)<br>95% "
                f"interval %{{customdata[2]:.1%}} to %{{customdata[3]:.1%}}<extra>{name}</extra>",
            )
    span = [0.6, len(depths) + 0.4]
    figure.update_xaxes(title="d, drafts accepted in a round", dtick=math.ceil(len(depths) / 8), tick0=1, range=span)
    figure.update_yaxes(title="rounds that accepted d or more", tickformat=".0%", range=[0, 1.03])
    wide = "Share of rounds that accepted at least d drafts. Bars: Wilson 95% interval."
    title, subtitle = for_phone(_depth_finding(drafted), wide)
    return dress(figure, title=title, subtitle=subtitle, plot_height=320)


def draw_histogram(rounds: pd.DataFrame) -> go.Figure:
    """Distribution of tokens emitted per round, chain beside tree, one panel for each temperature.

    Autoregressive rounds, always of 1 token, are left out. Reads temperature, label, strategy, budget and emitted.
    Raises ValueError for a missing column or no drafted round.
    """
    require(rounds, "rounds", [*KEYS, "emitted"])
    drafted = _drafted(rounds)
    values = temperatures(drafted)
    heights = [HISTOGRAM_HEIGHT] * len(values)
    figure = stacked_panels(values, heights)
    tokens = list(range(int(drafted["emitted"].min()), int(drafted["emitted"].max()) + 1))
    seen: set[str] = set()
    highest = 0.0
    for row, temperature in enumerate(values, start=1):
        for line in lines(drafted):
            emitted = drafted.loc[_cell(drafted, temperature, line.label), "emitted"]
            if emitted.empty:
                continue
            counts = [int((emitted == value).sum()) for value in tokens]
            shares = [count / len(emitted) for count in counts]
            highest = max(highest, *shares)
            bars = go.Bar(
                x=tokens,
                y=shares,
                name=line.label,
                legendgroup=line.label,
                showlegend=line.label not in seen,
                marker={"color": strategy_colour(line.strategy)},
                opacity=SHADES[line.place % len(SHADES)],
                customdata=[[count, len(emitted)] for count in counts],
                hovertemplate="%{x} tokens: %{y:.1%} (%{customdata[0]} of %{customdata[1]} rounds)"
                f"<extra>{at(temperature)}, {line.label}</extra>",
            )
            seen.add(line.label)
            figure.add_trace(bars, row=row, col=1)
    figure.update_yaxes(title="rounds", tickformat=".0%", range=[0, 1.08 * highest], nticks=5)
    figure.update_xaxes(dtick=math.ceil(len(tokens) / 8), tick0=1)
    figure.update_xaxes(title="tokens emitted in a round", row=len(values), col=1)
    title, elsewhere = _tail_finding(drafted)
    subtitle = f"{elsewhere}Tokens kept: accepted drafts and the final token."
    return dress_panels(figure, title, subtitle, heights, legend=True)


def draw_stage_times(rounds: pd.DataFrame) -> go.Figure:
    """Mean milliseconds per round by stage, stacked, one panel for each temperature and a bar for each label.

    The two model passes are muted, the stages of overhead coloured; the end of a bar tells its total and the share
    of overhead. Reads temperature, label, strategy, budget and one column "<stage>_ms" for each of
    `ddtree.decode.STAGES`. Raises ValueError for a missing column or an empty frame.
    """
    columns = [f"{stage}_ms" for stage in STAGES]
    require(rounds, "rounds", [*KEYS, *columns])
    figure, heights = label_panels(rounds)
    longest = 0.0
    for row, temperature in enumerate(temperatures(rounds), start=1):
        part = rounds[rounds["temperature"] == temperature]
        means = part.groupby("label")[columns].mean()
        totals, overhead = means.sum(axis=1), _overhead(means)
        longest = max(longest, float(totals.max()))
        for stage in STAGES:
            bars = go.Bar(
                x=means[f"{stage}_ms"].tolist(),
                y=means.index.tolist(),
                orientation="h",
                name=f"{stage} (model)" if stage in FORWARDS else stage,
                legendgroup=stage,
                showlegend=row == 1,
                marker={"color": STAGE_COLOURS[stage]},
                hovertemplate=f"%{{y}}: {stage} %{{x:.2f}} ms<extra>{at(temperature)}</extra>",
            )
            figure.add_trace(bars, row=row, col=1)
        ends = go.Scatter(
            x=totals.tolist(),
            y=means.index.tolist(),
            mode="text",
            text=[f" {total:.0f} ms, {share:.0%}" for total, share in zip(totals, overhead / totals, strict=True)],
            textposition="middle right",
            hoverinfo="skip",
            showlegend=False,
        )
        figure.add_trace(ends, row=row, col=1)
    figure.update_xaxes(range=[0, 1.38 * longest])
    figure.update_xaxes(title="mean time per round (ms)", row=len(heights), col=1)
    figure.update_layout(barmode="stack")
    title, largest = _time_finding(rounds)
    subtitle = f"{largest} At the bars: total, and the share that is overhead."
    return dress_panels(figure, title, subtitle, heights, legend=True)


def _drafted(rounds: pd.DataFrame) -> pd.DataFrame:
    drafted = rounds[rounds["strategy"] != "autoregressive"]
    if drafted.empty:
        raise ValueError("rounds holds autoregressive rounds alone; this figure needs rounds of a chain or a tree.")
    return drafted


def _cell(rounds: pd.DataFrame, temperature: float, label: str) -> pd.Series:
    return (rounds["temperature"] == temperature) & (rounds["label"] == label)


def _most_drafted(rounds: pd.DataFrame) -> pd.DataFrame:
    """The rounds a title speaks of: of the largest tree, else of the chain, else autoregressive."""
    label = lines(rounds)[-1].label
    return rounds[rounds["label"] == label]


def _depth_finding(drafted: pd.DataFrame) -> str:
    part = _most_drafted(drafted)
    shares = [
        f"{(part.loc[part['temperature'] == t, 'accepted'] >= 1).mean():.0%} at {at(t)}"
        for t in first_and_last(temperatures(part))
    ]
    return f"{_capitalised(part)}: a draft accepted in {', '.join(shares)}"


def _tail_finding(drafted: pd.DataFrame) -> tuple[str, str]:
    """Title and first sentence of the subtitle: who reaches the median of the lowest temperature's largest tree.

    Other trees, larger ones too, may have been measured at the highest temperature alone.
    """
    first, *last = first_and_last(temperatures(drafted))
    named = _most_drafted(drafted[drafted["temperature"] == first])
    reached = math.ceil(named["emitted"].median())

    def shares(temperature: float) -> str:
        here = drafted[drafted["temperature"] == temperature]
        by_label = (here["emitted"] >= reached).groupby(here["label"]).mean()
        return ", ".join(f"{line.label} {by_label[line.label]:.0%}" for line in reversed(lines(here)))

    title = f"Rounds of {reached} tokens or more at {at(first)}: {shares(first)}"
    return title, "".join(f"At {at(t)}: {shares(t)}. " for t in last)


def _overhead(times: pd.DataFrame) -> pd.Series:
    return times[[f"{stage}_ms" for stage in STAGES if stage not in FORWARDS]].sum(axis=1)


def _time_finding(rounds: pd.DataFrame) -> tuple[str, str]:
    """Title and the first line of the subtitle, from all rounds of the largest tree."""
    part = _most_drafted(rounds)
    times = part[[f"{stage}_ms" for stage in STAGES]]
    means = {stage: float(times[f"{stage}_ms"].mean()) for stage in STAGES}
    total = sum(means.values())
    largest = max(STAGES, key=means.__getitem__)
    costly = max((stage for stage in STAGES if stage not in FORWARDS), key=means.__getitem__)
    share = float(_overhead(times).mean()) / total
    title = f"{_capitalised(part)}: overhead {share:.0%} of a round, {largest} {means[largest] / total:.0%}"
    return title, f"Largest stage of overhead: {costly}, {means[costly]:.2f} ms a round."


def _capitalised(part: pd.DataFrame) -> str:
    label = str(part["label"].iloc[0])
    return label[:1].upper() + label[1:]
