"""What a live run measured, from its `summary` frame: speed and mean acceptance length with their intervals."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from ddtree.workbook.plots.frames import at, error_bars, first_and_last, lines, require, temperatures
from ddtree.workbook.plots.panels import dress_panels, label_panels
from ddtree.workbook.plots.theme import INK, TIMES, dress, for_phone, strategy_colour

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
