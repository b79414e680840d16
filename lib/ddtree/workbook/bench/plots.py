"""Figures of 07_speed: stages, builders, verify pipelines, attention, rounds and whole calls, with intervals."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ddtree.decode import FORWARDS, STAGES
from ddtree.workbook.theme import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PANEL_GAP,
    PURPLE,
    SKY,
    STAGE_COLOURS,
    STRATEGY_COLOURS,
    TIMES,
    VERMILION,
    at,
    dress,
    dress_panels,
    for_phone,
    require,
)

FLOOR_DASH = "dot"
EVERY_LINE = {"tickmode": "linear", "dtick": 1}  # of an axis of names: no name is left out


def size_name(row: Mapping[Any, Any]) -> str:
    """ "V 151,936, batch 32, budget 64" """
    return f"V {row['vocab']:,}, batch {row['batch']}, budget {row['budget']}"


def microseconds(us: float) -> str:
    """ "0.4 µs", "730 µs", "5.2 ms" """
    if us >= 1000:
        return f"{us / 1000:.3g} ms"
    return f"{us:.3g} µs"


def times(value: float) -> str:
    """A ratio as a title says it: two digits below 10, none beyond."""
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def bars_of(frame: pd.DataFrame, value: str, colour: str) -> dict[str, Any]:
    """Error bars of a colour from VALUE, VALUE_lo and VALUE_hi."""
    return {
        "type": "data",
        "symmetric": False,
        "array": (frame[f"{value}_hi"] - frame[value]).clip(lower=0).tolist(),
        "arrayminus": (frame[value] - frame[f"{value}_lo"]).clip(lower=0).tolist(),
        "color": colour,
        "thickness": 1.2,
        "width": 3,
    }


def ratio_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten that lie between the two, for a logarithmic axis."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [factor * 10.0**power for power in powers for factor in (1, 2, 5) if low <= factor * 10.0**power <= high]


def panels(headings: Sequence[str], heights: Sequence[int]) -> go.Figure:
    """Panels of the given pixel heights above one another on one x axis, headed at the left."""
    total = sum(heights) + PANEL_GAP * (len(heights) - 1)
    figure = make_subplots(
        rows=len(headings),
        cols=1,
        shared_xaxes=True,
        row_heights=list(heights),
        vertical_spacing=PANEL_GAP / total if len(heights) > 1 else 0,
        subplot_titles=list(headings),
    )
    return figure.update_annotations(x=0, xanchor="left", font={"size": 13})


CASE_HEIGHT = 26  # pixels of a size


def draw_cases(
    frame: pd.DataFrame, case: str, panel: str, colours: Mapping[str, str], peers: Collection[str], floor: str
) -> tuple[go.Figure, list[int]]:
    """Microseconds of each case, a panel for each value of column `panel`; and the panels' heights in pixels.

    Reads the columns `case`, `panel` and size, us and over_ours with their intervals, and floor_us. `colours` orders
    the cases; `peers` are diamonds; `floor` says what a floor is.
    """
    headings, sizes = list(dict.fromkeys(frame[panel])), list(dict.fromkeys(frame["size"]))
    heights = [CASE_HEIGHT * len(sizes) + 20] * len(headings)
    figure = panels(headings, heights)
    for row, heading in enumerate(headings, start=1):
        here = frame[frame[panel] == heading]
        for name in [name for name in colours if name in set(here[case])]:
            part = here[here[case] == name]
            figure.add_scatter(
                x=part["us"].tolist(),
                y=part["size"].tolist(),
                mode="markers",
                name=name,
                legendgroup=name,
                showlegend=row == 1,
                marker={"color": colours[name], "size": 9, "symbol": "diamond" if name in peers else "circle"},
                error_x=bars_of(part, "us", colours[name]),
                customdata=part[["us_lo", "us_hi", "over_ours", "over_ours_lo", "over_ours_hi"]].to_numpy().tolist(),
                hovertemplate="%{x:.1f} µs (%{customdata[0]:.1f} to %{customdata[1]:.1f})<br>%{customdata[2]:.2f} "
                f"times ours (%{{customdata[3]:.2f}} to %{{customdata[4]:.2f}})<extra>{name}</extra>",
                row=row,
                col=1,
            )
        floors = here.drop_duplicates("size")
        figure.add_scatter(
            x=floors["floor_us"].tolist(),
            y=floors["size"].tolist(),
            mode="markers",
            name="floor",
            legendgroup="floor",
            showlegend=row == 1,
            marker={"color": INK, "symbol": "line-ns-open", "size": 12},
            hovertemplate=f"{floor}: %{{x:.2f}} µs<extra>floor</extra>",
            row=row,
            col=1,
        )
    figure.update_yaxes(categoryorder="array", categoryarray=sizes, range=[len(sizes) - 0.5, -0.5], **EVERY_LINE)
    figure.update_xaxes(type="log", exponentformat="none", nticks=6)
    figure.update_xaxes(title="µs", row=len(headings), col=1)
    return figure, heights


STAGE_HEIGHT = 210  # pixels of a panel
STAGE_COLOURS_BY_NAME = {
    "top-k": BLUE,
    "build": GREEN,
    "compile": SKY,
    "mask": ORANGE,
    "sample": VERMILION,
    "plan": PURPLE,
    "heap": GREY,
}
NAMES = {"build": "build_tree", "compile": "compile_retrieve", "mask": "mask, positions", "plan": "plan_commit"}
FLOORED = ("build", "mask", "sample")  # whose floors are far enough above 0 to be seen


def draw_stages(stages: pd.DataFrame) -> go.Figure:
    """Median microseconds of each stage with 95 % intervals, on a logarithmic axis; floors dotted.

    The solid line is one launch after the other; where a stage was captured in a CUDA graph too, its replay is an open
    mark. Reads stage, how, vocab, batch, budget, us with its interval and floor_us. Raises ValueError for a missing
    column or no rows.
    """
    require(stages, "stages", ["stage", "how", "vocab", "batch", "budget", "us", "us_lo", "us_hi", "floor_us"])
    places = list(stages[["vocab", "batch"]].drop_duplicates().itertuples(index=False, name=None))
    heights = [STAGE_HEIGHT] * len(places)
    figure = panels([f"V {vocab:,}, batch {batch}" for vocab, batch in places], heights)
    budgets = sorted(stages["budget"].unique().tolist())
    for row, (vocab, batch) in enumerate(places, start=1):
        here = stages[(stages["vocab"] == vocab) & (stages["batch"] == batch)]
        for stage, colour in STAGE_COLOURS_BY_NAME.items():
            part = here[here["stage"] == stage].sort_values("budget")
            if not part.empty:
                _add_stage(figure, part, stage, colour, budgets, row)
    figure.update_xaxes(tickvals=list(range(len(budgets))), ticktext=[str(budget) for budget in budgets])
    figure.update_xaxes(range=[-0.3, len(budgets) - 0.7])
    figure.update_xaxes(title="tree budget", row=len(places), col=1)
    figure.update_yaxes(type="log", title="µs", nticks=6, exponentformat="none")
    in_graphs = " Open marks: in a CUDA graph." if (stages["how"] == "graph").any() else ""
    subtitle = f"Median of interleaved turns. Dotted: what moving the bytes once would take.{in_graphs}"
    return dress_panels(figure, _stages_finding(stages), subtitle, heights, legend=True)


def _add_stage(figure: go.Figure, part: pd.DataFrame, stage: str, colour: str, budgets: list[int], row: int) -> None:
    name = NAMES.get(stage, stage)
    for how, marks in (("launches", {"size": 7}), ("graph", {"size": 9, "symbol": "circle-open"})):
        shown = part[part["how"] == how]
        if shown.empty:
            continue
        figure.add_scatter(
            x=[budgets.index(budget) for budget in shown["budget"]],
            y=shown["us"].tolist(),
            mode="lines+markers" if how == "launches" else "markers",
            name=name,
            legendgroup=stage,
            showlegend=row == 1 and how == "launches",
            line={"color": colour, "width": 2},
            marker={"color": colour, **marks},
            error_y=bars_of(shown, "us", colour),
            customdata=shown[["us_lo", "us_hi", "floor_us"]].to_numpy().tolist(),
            hovertemplate="%{y:.1f} µs (%{customdata[0]:.1f} to %{customdata[1]:.1f})<br>floor %{customdata[2]:.2f} µs"
            f"<extra>{name}{', in a graph' if how == 'graph' else ''}</extra>",
            row=row,
            col=1,
        )
    if stage in FLOORED:
        floors = part[part["how"] == "launches"]
        figure.add_scatter(
            x=[budgets.index(budget) for budget in floors["budget"]],
            y=floors["floor_us"].tolist(),
            mode="lines",
            name=f"floor of {name}",
            legendgroup=stage,
            showlegend=False,
            line={"color": colour, "width": 1.5, "dash": FLOOR_DASH},
            hoverinfo="skip",
            row=row,
            col=1,
        )


def _stages_finding(stages: pd.DataFrame) -> str:
    """The dearest stage of ours at the largest size."""
    ours = stages[(stages["how"] == "launches") & ~stages["stage"].isin(["heap", "top-k"])]
    ours = ours.sort_values(["vocab", "batch", "budget"])
    largest = ours[(ours[["vocab", "batch", "budget"]] == ours[["vocab", "batch", "budget"]].iloc[-1]).all(axis=1)]
    dearest = largest.sort_values("us").iloc[-1]
    return f"{size_name(dearest.to_dict())}: {dearest['stage']} costs most, {microseconds(dearest['us'])}"


BUILDER_HEIGHT = 30  # pixels of a size
BUILDER_COLOURS = (BLUE, SKY)


def draw_builders(builders: pd.DataFrame) -> go.Figure:
    """The heap's median time over ours with 95 % intervals, one line for each size; right of 1 ours is faster.

    Reads builder, vocab, batch, budget and ratio with its interval. Raises ValueError for a missing column or no rows.
    """
    require(builders, "builders", ["builder", "vocab", "batch", "budget", "ratio", "ratio_lo", "ratio_hi", "heap_us"])
    named = builders.assign(size=[size_name(row) for row in builders.to_dict("records")])
    sizes = list(dict.fromkeys(named["size"]))
    figure = go.Figure()
    for builder, colour in zip(dict.fromkeys(named["builder"]), BUILDER_COLOURS, strict=False):
        part = named[named["builder"] == builder]
        figure.add_scatter(
            x=part["ratio"].tolist(),
            y=part["size"].tolist(),
            mode="markers",
            name=builder,
            marker={"color": colour, "size": 10},
            error_x=bars_of(part, "ratio", colour),
            customdata=part[["ratio_lo", "ratio_hi", "heap_us"]].to_numpy().tolist(),
            hovertemplate="%{x:.2f} times faster than the heap (%{customdata[0]:.2f} to %{customdata[1]:.2f}), which "
            f"takes %{{customdata[2]:.0f}} µs<extra>{builder}</extra>",
        )
    figure.add_vline(x=1, line={"color": INK, "width": 1, "dash": "dot"})
    figure.update_yaxes(categoryorder="array", categoryarray=sizes, range=[len(sizes) - 0.5, -0.5], **EVERY_LINE)
    ticks = ratio_ticks(min(1.0, float(named["ratio_lo"].min())), max(1.0, float(named["ratio_hi"].max())))
    names = [f"{tick:g}" for tick in ticks]
    figure.update_xaxes(type="log", title="heap time over ours", tickvals=ticks, ticktext=names)
    ordered = named.sort_values("ratio")
    worst, best = ordered.iloc[0], ordered.iloc[-1]
    title = f"Heap over ours: {times(worst['ratio'])} to {times(best['ratio'])}{TIMES}"
    subtitle = (
        "Both from logits to a tree on the device, top-k over the vocabulary included. Bars: 95% interval. "
        f"Smallest at {worst['size']}."
    )
    title, subtitle = for_phone(title, subtitle)
    return dress(figure, title=title, subtitle=subtitle, plot_height=BUILDER_HEIGHT * len(sizes) + 20)


VERIFY_COLOURS = {
    "ours: fused": BLUE,
    "ours: fused, no wait": PURPLE,
    "ours: fused, graph": SKY,
    "ours: sgl": GREEN,
    "ours: reference": GREY,
    "stock pipeline": ORANGE,
    "SGLang DFlash": VERMILION,
}
PEERS = ("stock pipeline", "SGLang DFlash")


def draw_verify(verify: pd.DataFrame) -> go.Figure:
    """Median microseconds of each pipeline with 95 % intervals, a panel for each setting of filters; floors as ticks.

    Reads pipeline, filters, vocab, batch, budget, us and over_ours with their intervals, and floor_us. Raises
    ValueError for a missing column or no rows.
    """
    require(verify, "verify", ["pipeline", "filters", "vocab", "batch", "budget", "us", "over_ours", "floor_us"])
    named = verify.assign(size=[size_name(row) for row in verify.to_dict("records")])
    figure, heights = draw_cases(named, "pipeline", "filters", VERIFY_COLOURS, PEERS, "rows of the walk, read once")
    subtitle = "From logits to accepted paths. Bars: 95% interval. Tick: reading the rows of the walk once."
    return dress_panels(figure, _verify_finding(named), subtitle, heights, legend=True)


def _verify_finding(named: pd.DataFrame) -> str:
    """Each peer over ours at the largest size; without a peer, what ours takes there."""
    last = named.iloc[-1]
    first = named.iloc[0]["filters"]
    here = named[(named["size"] == last["size"]) & (named["filters"] == first)].set_index("pipeline")
    peers = [f"{name} {times(here.loc[name, 'over_ours'])}{TIMES} ours" for name in PEERS if name in here.index]
    if peers:
        return f"{last['size']}: {', '.join(peers)}"
    ours = here.iloc[0]
    return f"{last['size']}: {here.index[0].removeprefix('ours: ')} takes {microseconds(ours['us'])}"


OURS, SGLANG = "ours: tree attention", "SGLang extend"
ATTENTION_COLOURS = {OURS: BLUE, SGLANG: ORANGE}


def draw_attention(attention: pd.DataFrame) -> go.Figure:
    """Median microseconds of a layer with 95 % intervals, a panel for the heads of each model; floors as ticks.

    Reads attention, model, prefix, batch, budget, us and over_ours with their intervals, and floor_us. Raises
    ValueError for a missing column or no rows.
    """
    require(attention, "attention", ["attention", "model", "prefix", "batch", "budget", "us", "over_ours", "floor_us"])
    sizes = [
        f"{row['prefix']:,} tokens, batch {row['batch']}, budget {row['budget']}"
        for row in attention.to_dict("records")
    ]
    headings = [f"heads of {model}" for model in attention["model"]]
    named = attention.assign(size=sizes, heads=headings)
    figure, heights = draw_cases(
        named, "attention", "heads", ATTENTION_COLOURS, (SGLANG,), "keys and values, read once"
    )
    subtitle = "One layer of a verify. Tokens: of the prefix. Bars: 95% interval. Tick: reading keys and values once."
    return dress_panels(figure, _attention_finding(named), subtitle, heights, legend=True)


def _attention_finding(named: pd.DataFrame) -> str:
    """The range of SGLang's time over ours; without SGLang, what ours takes at the largest size."""
    ratios = named.loc[named["attention"] == SGLANG, "over_ours"]
    if len(ratios):
        return f"SGLang's extend kernel takes {times(ratios.min())} to {times(ratios.max())}{TIMES} as long as ours"
    last = named.iloc[-1]
    return f"{last['heads']}, {last['size']}: {microseconds(last['us'])} a layer"


BAR_HEIGHT = 34  # pixels of a bar


def draw_rounds(rounds: pd.DataFrame) -> go.Figure:
    """Median milliseconds of each stage, stacked; the end of a bar tells the share outside the two forwards.

    Reads model, batch, budget, stage, us and share. Raises ValueError for a missing column or no rows.
    """
    require(rounds, "rounds", ["model", "batch", "budget", "stage", "us", "share", "share_lo", "share_hi"])
    named = rounds.assign(
        label=[f"{r['model']}, batch {r['batch']}, budget {r['budget']}" for r in rounds.to_dict("records")]
    )
    labels = list(dict.fromkeys(named["label"]))
    figure = go.Figure()
    for stage in (*FORWARDS, *(stage for stage in STAGES if stage not in FORWARDS)):
        part = named[named["stage"] == stage].set_index("label").loc[labels]
        figure.add_bar(
            x=(part["us"] / 1e3).tolist(),
            y=labels,
            orientation="h",
            name=stage,
            marker={"color": STAGE_COLOURS[stage]},
            customdata=part[["share", "us_lo", "us_hi"]].to_numpy().tolist(),
            hovertemplate="%{x:.3f} ms, %{customdata[0]:.1%} of the round (%{customdata[1]:.0f} to %{customdata[2]:.0f}"
            f" µs)<extra>{stage}</extra>",
        )
    overhead = named[named["stage"] == "overhead"].set_index("label").loc[labels]
    ends = named[named["stage"].isin(STAGES)].groupby("label")["us"].sum().loc[labels] / 1e3
    figure.add_scatter(
        x=ends.tolist(),
        y=labels,
        mode="text",
        text=[f" {share:.1%}" for share in overhead["share"]],
        textposition="middle right",
        textfont={"color": INK, "size": 11},
        showlegend=False,
        cliponaxis=False,
        hoverinfo="skip",
    )
    figure.update_layout(barmode="stack")
    figure.update_xaxes(title="milliseconds per round", range=[0, 1.14 * float(ends.max())])
    figure.update_yaxes(categoryorder="array", categoryarray=labels, range=[len(labels) - 0.5, -0.5], **EVERY_LINE)
    least, most = overhead["share"].min(), overhead["share"].max()
    title = f"Outside the two forwards: {least:.1%} to {most:.1%} of a round"
    subtitle = "Grey: draft and verify, the models' own passes. Beside each bar: the share of all the rest."
    title, subtitle = for_phone(title, subtitle)
    return dress(figure, title=title, subtitle=subtitle, plot_height=BAR_HEIGHT * len(labels) + 16)


CHAIN_HEIGHT = 190  # pixels of a panel
CHAIN_COLOURS = {**STRATEGY_COLOURS, "dflash_generate": VERMILION}


def draw_chain(chain: pd.DataFrame) -> go.Figure:
    """Tokens per second of each method with 95 % intervals, side by side at each temperature.

    Reads model, temperature, method, tokens_per_s with its interval, and over_peer. Raises ValueError for a missing
    column or no rows.
    """
    require(chain, "chain", ["model", "temperature", "method", "tokens_per_s", "tokens_per_s_lo", "tokens_per_s_hi"])
    models = list(dict.fromkeys(chain["model"]))
    heights = [CHAIN_HEIGHT] * len(models)
    figure = panels(models, heights)
    for row, model in enumerate(models, start=1):
        here = chain[chain["model"] == model]
        for method in [name for name in CHAIN_COLOURS if name in set(here["method"])]:
            part = here[here["method"] == method]
            colour = CHAIN_COLOURS[method]
            figure.add_bar(
                x=[at(temperature) for temperature in part["temperature"]],
                y=part["tokens_per_s"].tolist(),
                name=method,
                legendgroup=method,
                showlegend=row == 1,
                marker={"color": colour},
                error_y=bars_of(part, "tokens_per_s", "#4D4D4D"),
                customdata=part[["tokens_per_s_lo", "tokens_per_s_hi", "tokens"]].to_numpy().tolist(),
                hovertemplate="%{y:.1f} tokens/s (%{customdata[0]:.1f} to %{customdata[1]:.1f}), "
                f"%{{customdata[2]}} tokens<extra>{method}</extra>",
                row=row,
                col=1,
            )
    figure.update_yaxes(title="tokens/s", nticks=5, rangemode="tozero")
    figure.update_xaxes(type="category")
    subtitle = "Whole calls, prefill included, on the same prompts. Bars: 95% interval over prompts."
    return dress_panels(figure, _chain_finding(chain), subtitle, heights, legend=True)


def _chain_finding(chain: pd.DataFrame) -> str:
    trees = chain[chain["method"] == "tree"]
    rated = trees[trees["over_peer"].notna()] if "over_peer" in trees else trees.iloc[:0]
    if rated.empty:
        return "Tokens per second of whole calls"
    low, high = rated["over_peer"].min(), rated["over_peer"].max()
    span = times(low) if len(rated) == 1 else f"{times(low)} to {times(high)}"
    return f"Tree over dflash_generate: {span}{TIMES} its tokens/s"
