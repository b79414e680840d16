"""Figures of 03_live: speed, acceptance, stage times, calibration and chosen budgets, with intervals."""

from __future__ import annotations

import math

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots
from scipy.stats import binomtest

from ddtree.adaptive_budget import RoundCost
from ddtree.decode import FORWARDS, STAGES
from ddtree.workbook.live.calibration import DEEPEST
from ddtree.workbook.theme import (
    HEADER,
    INK,
    PANEL_GAP,
    STAGE_COLOURS,
    TIMES,
    at,
    dress,
    dress_panels,
    error_bars,
    first_and_last,
    for_phone,
    label_panels,
    lines,
    require,
    stacked_panels,
    strategy_colour,
    temperature_colour,
    temperatures,
)

KEYS = ("temperature", "label", "strategy", "budget")
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "star")  # of the labels of one strategy
UNCLEAR = "(±)"  # marks a speed-up that may be none
DASHES = ("solid", "dash", "dashdot", "longdash", "longdashdot", "dot")


def draw_speed(summary: pd.DataFrame) -> go.Figure:
    """Tokens per second with 95% intervals, one panel for each temperature, the speed-up written at each point.

    Reads temperature, label, strategy, budget, and tokens_per_s and speedup, each with _lo and _hi. Raises
    ValueError for a missing column, an empty frame, or a value outside its interval.
    """
    measured = [f"{name}{end}" for name in ("tokens_per_s", "speedup") for end in ("", "_lo", "_hi")]
    require(summary, "summary", [*KEYS, *measured])
    figure, heights = label_panels(summary)
    order = {line.label: i for i, line in enumerate(lines(summary))}
    farthest = float(summary["tokens_per_s_hi"].max())
    for row, temperature in enumerate(temperatures(summary), start=1):
        part = summary[summary["temperature"] == temperature].sort_values("label", key=lambda s: s.map(order))
        colours = [strategy_colour(strategy) for strategy in part["strategy"]]
        speed = go.Scatter(
            x=part["tokens_per_s"].tolist(),
            y=part["label"].tolist(),
            mode="markers",
            marker={"size": 11, "color": colours},
            error_x={**error_bars(part, "tokens_per_s"), "color": INK, "thickness": 1.5, "width": 5},
            customdata=part[["tokens_per_s_lo", "tokens_per_s_hi"]].to_numpy().tolist(),
            hovertemplate="%{y}: %{x:.1f} tokens/s<br>95% interval %{customdata[0]:.1f} to %{customdata[1]:.1f}"
            f"<extra>{at(temperature)}</extra>",
            showlegend=False,
        )
        factors = go.Scatter(
            x=part["tokens_per_s_hi"].tolist(),
            y=part["label"].tolist(),
            mode="text",
            text=[f"  {speedup:.2f}{TIMES}" for speedup in part["speedup"]],
            textposition="middle right",
            cliponaxis=False,
            customdata=part[["speedup", "speedup_lo", "speedup_hi"]].to_numpy().tolist(),
            hovertemplate="%{y}: %{customdata[0]:.2f} times autoregressive<br>95% interval %{customdata[1]:.2f} to "
            f"%{{customdata[2]:.2f}}<extra>{at(temperature)}</extra>",
            showlegend=False,
        )
        figure.add_traces([speed, factors], rows=[row, row], cols=[1, 1])
        for baseline in part.loc[part["strategy"] == "autoregressive", "tokens_per_s"]:
            figure.add_vline(x=baseline, row=row, col=1, line={"color": INK, "width": 1, "dash": "dot"})
    figure.update_xaxes(range=[0, 1.18 * farthest])
    figure.update_xaxes(title="tokens per second", row=len(heights), col=1)
    finding = _speed_finding(summary)
    unclear = f" {UNCLEAR}: its interval holds 1." if UNCLEAR in finding else ""
    subtitle = f"Mean with 95% interval; {TIMES}: speed-up over autoregressive, same prompts.{unclear}"
    return dress_panels(figure, finding, subtitle, heights, legend=False)


def draw_acceptance(summary: pd.DataFrame) -> go.Figure:
    """Mean acceptance length (tokens per round) with 95% intervals against temperature, a line for each label.

    Reads temperature, label, strategy, budget, acceptance, acceptance_lo and acceptance_hi. Raises ValueError as
    `draw_speed`.
    """
    require(summary, "summary", [*KEYS, "acceptance", "acceptance_lo", "acceptance_hi"])
    figure = go.Figure()
    for line in lines(summary):
        part = summary[summary["label"] == line.label].sort_values("temperature")
        colour = strategy_colour(line.strategy)
        figure.add_scatter(
            x=part["temperature"].tolist(),
            y=part["acceptance"].tolist(),
            mode="lines+markers",
            name=line.label,
            line={"color": colour, "width": 2, "dash": DASHES[line.place % len(DASHES)]},
            marker={"color": colour, "size": 9, "symbol": SYMBOLS[line.place % len(SYMBOLS)]},
            error_y={**error_bars(part, "acceptance"), "color": colour, "thickness": 1.5, "width": 5},
            customdata=part[["acceptance_lo", "acceptance_hi"]].to_numpy().tolist(),
            hovertemplate="T = %{x:g}: %{y:.2f} tokens per round<br>95% interval %{customdata[0]:.2f} to "
            f"%{{customdata[1]:.2f}}<extra>{line.label}</extra>",
        )
    figure.update_xaxes(title="temperature", tickvals=temperatures(summary))
    figure.update_yaxes(title="tokens per round", range=[0, 1.08 * float(summary["acceptance_hi"].max())])
    wide = "Mean acceptance length: accepted drafts and the final token. Bars: 95% interval."
    title, subtitle = for_phone(_acceptance_finding(summary), wide)
    return dress(figure, title=title, subtitle=subtitle, plot_height=300)


def _speed_finding(summary: pd.DataFrame) -> str:
    drafted = _most_drafted(summary)
    if drafted.empty:
        return f"Autoregressive decoding: {summary['tokens_per_s'].mean():.1f} tokens/s"
    found = []
    for temperature in first_and_last(temperatures(drafted)):
        here = drafted[drafted["temperature"] == temperature]
        best = here.sort_values("speedup").iloc[-1]
        unclear = f" {UNCLEAR}" if best["speedup_lo"] <= 1 <= best["speedup_hi"] else ""
        found.append(f"{best['speedup']:.1f}{TIMES}{unclear} at {at(temperature)}")
    return f"{_named(drafted, ' decoding')}: {', '.join(found)}"


def _acceptance_finding(summary: pd.DataFrame) -> str:
    drafted = _most_drafted(summary)
    if drafted.empty:
        return "Autoregressive decoding: 1 token a round"
    first, *last = [
        (float(drafted.loc[drafted["temperature"] == t, "acceptance"].max()), at(t))
        for t in first_and_last(temperatures(drafted))
    ]
    found = [f"{first[0]:.1f} tokens a round at {first[1]}", *(f"{mean:.1f} at {where}" for mean, where in last)]
    return f"{_named(drafted)}: {', '.join(found)}"


def _most_drafted(summary: pd.DataFrame) -> pd.DataFrame:
    """The rows a title speaks of: trees, or chains where there are none."""
    trees = summary[summary["strategy"] == "tree"]
    return summary[summary["strategy"] == "chain"] if trees.empty else trees


def _named(drafted: pd.DataFrame, noun: str = "") -> str:
    """ "Tree" or "Chain" with its noun, or "Best tree" where the largest of several is quoted."""
    name = str(drafted["strategy"].iloc[0])
    return f"Best {name}" if drafted["label"].nunique() > 1 else f"{name.capitalize()}{noun}"


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


def _largest_tree(rounds: pd.DataFrame) -> pd.DataFrame:
    """The rounds a title speaks of: of the largest tree, else of the chain, else autoregressive."""
    label = lines(rounds)[-1].label
    return rounds[rounds["label"] == label]


def _depth_finding(drafted: pd.DataFrame) -> str:
    part = _largest_tree(drafted)
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
    named = _largest_tree(drafted[drafted["temperature"] == first])
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
    part = _largest_tree(rounds)
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


DEPTH_COLOURS = ("#4477AA", "#CCBB44", "#AA3377")  # none of a temperature
DEPTH_SYMBOLS = ("circle", "diamond", "square")
PANEL = 190  # pixels
COLUMNS = ("temperature", "depth", "draft", "n", "accepted", "share", "share_lo", "share_hi")


def draw_reliability(table: pd.DataFrame) -> go.Figure:
    """Share accepted against mean draft probability with Wilson 95% intervals, one panel for each temperature.

    Reads what `calibration.reliability` returns. On the diagonal the drafter's probability is the acceptance; above it
    the drafter is too modest. Raises ValueError for a missing column or an empty frame.
    """
    require(table, "table", COLUMNS)
    values = temperatures(table)
    heights = [PANEL] * len(values)
    figure = stacked_panels(values, heights)
    depths = sorted(int(depth) for depth in table["depth"].unique())
    shown: set[int] = set()
    for row, temperature in enumerate(values, start=1):
        diagonal = go.Scatter(
            x=[0, 1], y=[0, 1], mode="lines", line={"color": INK, "dash": "dot"}, hoverinfo="skip", showlegend=False
        )
        figure.add_trace(diagonal, row=row, col=1)
        for depth in depths:
            part = table[(table["temperature"] == temperature) & (table["depth"] == depth)].sort_values("draft")
            if len(part):
                figure.add_trace(_points(part, depth, first=depth not in shown), row=row, col=1)
                shown.add(depth)
    figure.update_xaxes(range=[0, 1.02])
    figure.update_xaxes(title="probability given by the drafter", row=len(values), col=1)
    figure.update_yaxes(range=[-0.02, 1.05], tickformat=".0%", title="accepted")
    subtitle = "Nodes whose parent was accepted. Dotted: perfect calibration. Bars: Wilson 95% interval."
    return dress_panels(figure, _reliability_finding(table), subtitle, heights, legend=True)


def _points(part: pd.DataFrame, depth: int, *, first: bool) -> go.Scatter:
    style = (depth - 1) % len(DEPTH_COLOURS)
    name = f"depth {depth} and deeper" if depth == DEEPEST else f"depth {depth}"
    return go.Scatter(
        x=part["draft"].tolist(),
        y=part["share"].tolist(),
        mode="lines+markers",
        name=name,
        legendgroup=name,
        showlegend=first,
        line={"color": DEPTH_COLOURS[style], "width": 1},
        marker={"color": DEPTH_COLOURS[style], "size": 8, "symbol": DEPTH_SYMBOLS[style]},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": (part["share_hi"] - part["share"]).tolist(),
            "arrayminus": (part["share"] - part["share_lo"]).tolist(),
            "thickness": 1.2,
            "width": 4,
        },
        customdata=part[["accepted", "n", "share_lo", "share_hi"]].to_numpy().tolist(),
        hovertemplate="draft probability %{x:.2f}: %{y:.0%} accepted (%{customdata[0]:.0f} of %{customdata[1]:.0f})"
        f"<br>95% interval %{{customdata[2]:.0%}} to %{{customdata[3]:.0%}}<extra>{name}</extra>",
    )


def _reliability_finding(table: pd.DataFrame) -> str:
    found = []
    for temperature in first_and_last(temperatures(table)):
        part = table[table["temperature"] == temperature]
        said = (part["draft"] * part["n"]).sum() / part["n"].sum()
        met = part["accepted"].sum() / part["n"].sum()
        found.append(f"{said:.0%} said, {met:.0%} met at {at(temperature)}")
    return f"Drafter's probabilities: {'; '.join(found)}"


HEIGHTS = [130, 190]  # pixels: cost, choices


def draw_chosen_budgets(rounds: pd.DataFrame, cost: RoundCost) -> go.Figure:
    """Milliseconds of a round by budget, and the share of rounds that chose at most so many nodes.

    `rounds` are those of settings with the budget "auto"; reads temperature and tree_size. Raises ValueError for a
    missing column or no round.
    """
    require(rounds, "rounds", ["temperature", "tree_size"])
    figure = make_subplots(
        rows=2,
        cols=1,
        shared_xaxes=True,
        row_heights=HEIGHTS,
        vertical_spacing=PANEL_GAP / (sum(HEIGHTS) + PANEL_GAP),
        subplot_titles=["what a round costs", "what was chosen"],
    )
    figure.update_annotations(x=0, xanchor="left", font={"size": 13})
    measured = go.Scatter(
        x=list(cost.budgets),
        y=list(cost.ms),
        mode="lines+markers",
        line={"color": INK, "width": 2},
        marker={"size": 7},
        hovertemplate="budget %{x}: %{y:.1f} ms a round<extra></extra>",
        showlegend=False,
    )
    figure.add_trace(measured, row=1, col=1)
    budgets = list(range(cost.budgets[-1] + 1))
    for temperature in temperatures(rounds):
        nodes = rounds.loc[rounds["temperature"] == temperature, "tree_size"] - 1
        shares = [float((nodes <= budget).mean()) for budget in budgets]
        chosen = go.Scatter(
            x=budgets,
            y=shares,
            mode="lines",
            name=at(temperature),
            line={"color": temperature_colour(temperature), "width": 2, "shape": "hv"},
            hovertemplate="%{y:.0%} of " + str(len(nodes)) + " rounds chose %{x} nodes or fewer"
            f"<extra>{at(temperature)}</extra>",
        )
        figure.add_trace(chosen, row=2, col=1)
    figure.update_yaxes(title="ms", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(title="rounds", tickformat=".0%", range=[0, 1.03], row=2, col=1)
    figure.update_xaxes(title="nodes beside the root", row=2, col=1)
    wide = "Above: median of whole rounds at each budget. Below: rounds that chose so many nodes or fewer."
    title, subtitle = for_phone(_budget_finding(rounds), wide)
    return dress(figure, title=title, subtitle=subtitle, plot_height=sum(HEIGHTS) + PANEL_GAP, header=HEADER)


def _budget_finding(rounds: pd.DataFrame) -> str:
    medians = (rounds["tree_size"] - 1).groupby(rounds["temperature"]).median()
    found = [f"{medians[t]:g} nodes at {at(t)}" for t in first_and_last(sorted(medians.index))]
    return f"Budget chosen (median): {', '.join(found)}"
