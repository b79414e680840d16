"""Draws the figures of 07_speed: stages, builders, verify pipelines, attention, rounds and whole calls, with intervals.

Where a stage has a lower bound (moving its bytes once), it is drawn next to what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import pandas as pd
import plotly.graph_objects as go

from ddtree.decode import FORWARDS, STAGES
from ddtree.workbook.theme import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    STAGE_COLOURS,
    STRATEGY_COLOURS,
    TIMES,
    VERMILION,
    add_series,
    apply_layout,
    interval_columns,
    name_rows,
    named_ticks,
    require,
    stacked_panels,
    temperature_label,
)

CASE_HEIGHT, STAGE_HEIGHT, BUILDER_HEIGHT, BAR_HEIGHT, CHAIN_HEIGHT = 26, 210, 30, 34, 190  # pixels of a line or panel
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
BUILDER_COLOURS = (BLUE, SKY)
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
OURS, SGLANG = "ours: tree attention", "SGLang extend"
ATTENTION_COLOURS = {OURS: BLUE, SGLANG: ORANGE}
CHAIN_COLOURS = {**STRATEGY_COLOURS, "dflash_generate": VERMILION}


def microseconds(us: float) -> str:
    """ "0.4 µs", "730 µs", "5.2 ms" """
    return f"{us / 1000:.3g} ms" if us >= 1000 else f"{us:.3g} µs"


def times(value: float) -> str:
    """A ratio as a title says it: two digits below 10, none beyond."""
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def draw_stages(stages: pd.DataFrame) -> go.Figure:
    """Median microseconds of each stage with 95 % intervals, on a logarithmic axis; floors dotted.

    The solid line is one launch after the other; where a stage was captured in a CUDA graph too, its replay is an open
    mark. Reads stage, how, vocab, batch, budget, us with its interval and floor_us. Raises ValueError for a missing
    column or no rows.
    """
    require(stages, "stages", ["stage", "how", "vocab", "batch", "budget", *interval_columns("us"), "floor_us"])
    budgets = sorted(stages["budget"].unique().tolist())
    placed = stages.assign(x=stages["budget"].map(budgets.index)).sort_values("budget")
    places = list(stages[["vocab", "batch"]].drop_duplicates().itertuples(index=False, name=None))
    heights = [STAGE_HEIGHT] * len(places)
    figure = stacked_panels([f"V {vocab:,}, batch {batch}" for vocab, batch in places], heights)
    for row, (vocab, batch) in enumerate(places, start=1):
        here = placed[(placed["vocab"] == vocab) & (placed["batch"] == batch)]
        for stage, colour in STAGE_COLOURS_BY_NAME.items():
            _add_stage(figure, here[here["stage"] == stage], stage, colour, row)
    figure.update_xaxes(range=[-0.3, len(budgets) - 0.7], **named_ticks(budgets))
    figure.update_xaxes(title="tree budget", row=len(places), col=1)
    figure.update_yaxes(type="log", title="µs", nticks=6, exponentformat="none")
    in_graphs = " Open marks: in a CUDA graph." if (stages["how"] == "graph").any() else ""
    subtitle = f"Median of interleaved measurements. Dotted: what moving the bytes once would take.{in_graphs}"
    ours = stages[(stages["how"] == "launches") & ~stages["stage"].isin(["heap", "top-k"])]
    largest = list(ours.groupby(["vocab", "batch", "budget"]))[-1][1].sort_values("us").iloc[-1]
    title = f"{_sizes(largest.to_frame().T)[0]}: {largest['stage']} costs most, {microseconds(largest['us'])}"
    return apply_layout(figure, title, subtitle, heights)


def _add_stage(figure: go.Figure, part: pd.DataFrame, stage: str, colour: str, row: int) -> None:
    name = NAMES.get(stage, stage)
    launches, graphs = part[part["how"] == "launches"], part[part["how"] == "graph"]
    hover = "{y:.1f} µs ({us_lo:.1f} to {us_hi:.1f})<br>floor {floor_us:.2f} µs"
    if len(launches):
        add_series(
            figure, launches, "x", "us", name=name, colour=colour, row=row, group=stage, marker={"size": 7},
            error_y="us", hover=hover
        )  # fmt: skip
    if len(graphs):
        add_series(
            figure, graphs, "x", "us", name=name, colour=colour, mode="markers", row=row, group=stage,
            marker={"size": 9, "symbol": "circle-open"}, error_y="us", hover=hover, extra=f"{name}, in a graph"
        )  # fmt: skip
    if len(part) and stage in FLOORED:
        line = {"width": 1.5, "dash": "dot"}
        add_series(
            figure, launches, "x", "floor_us", name=f"floor of {name}", colour=colour, mode="lines", row=row,
            group=stage, line=line
        )  # fmt: skip


def draw_builders(builders: pd.DataFrame) -> go.Figure:
    """The heap's median time over ours with 95 % intervals, one line for each size; right of 1 ours is faster.

    Reads builder, vocab, batch, budget and ratio with its interval. Raises ValueError for a missing column or no rows.
    """
    columns = ["builder", "vocab", "batch", "budget", *interval_columns("ratio"), "heap_us"]
    require(builders, "builders", columns)
    named = builders.assign(size=_sizes(builders))
    sizes = list(named["size"].unique())
    figure = go.Figure()
    for builder, colour in zip(named["builder"].unique(), BUILDER_COLOURS, strict=False):
        add_series(
            figure, named[named["builder"] == builder], "ratio", "size", name=builder, colour=colour, mode="markers",
            marker={"size": 10}, error_x="ratio",
            hover="{x:.2f} times faster than the heap ({ratio_lo:.2f} to {ratio_hi:.2f}), which takes {heap_us:.0f} µs"
        )  # fmt: skip
    figure.add_vline(x=1, line={"color": INK, "width": 1, "dash": "dot"})
    name_rows(figure, sizes)
    ticks = _ratio_ticks(min(1.0, float(named["ratio_lo"].min())), max(1.0, float(named["ratio_hi"].max())))
    names = [f"{tick:g}" for tick in ticks]
    figure.update_xaxes(type="log", title="heap time over ours", tickvals=ticks, ticktext=names)
    ratio = named.set_index("size")["ratio"]
    title = f"Heap over ours: {times(ratio.min())} to {times(ratio.max())}{TIMES}"
    subtitle = "Both from logits to a tree on the device, top-k over the vocabulary included. Bars: 95% interval. "
    return apply_layout(figure, title, f"{subtitle}Smallest at {ratio.idxmin()}.", BUILDER_HEIGHT * len(sizes) + 20)


def _ratio_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten that lie between the two, for a logarithmic axis."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [factor * 10.0**power for power in powers for factor in (1, 2, 5) if low <= factor * 10.0**power <= high]


def draw_verify(verify: pd.DataFrame) -> go.Figure:
    """Median microseconds of each pipeline with 95 % intervals, a panel for each setting of filters; floors as ticks.

    Reads pipeline, filters, vocab, batch, budget, us and over_ours with their intervals, and floor_us. Raises
    ValueError for a missing column or no rows.
    """
    require(verify, "verify", ["pipeline", "filters", "vocab", "batch", "budget", "us", "over_ours", "floor_us"])
    named = verify.assign(size=_sizes(verify))
    figure, heights = _cases(named, "pipeline", "filters", VERIFY_COLOURS, PEERS, "rows of the walk, read once")
    subtitle = "From logits to accepted paths. Bars: 95% interval. Tick: reading the rows of the walk once."
    return apply_layout(figure, _verify_title(named), subtitle, heights)


def _verify_title(named: pd.DataFrame) -> str:
    """Each peer over ours at the largest size; without a peer, what ours takes there."""
    size, filters = named.iloc[-1]["size"], named.iloc[0]["filters"]
    here = named[(named["size"] == size) & (named["filters"] == filters)].set_index("pipeline")
    peers = [f"{name} {times(here.loc[name, 'over_ours'])}{TIMES} ours" for name in PEERS if name in here.index]
    ours = f"{here.index[0].removeprefix('ours: ')} takes {microseconds(here['us'].iloc[0])}"
    return f"{size}: {', '.join(peers) or ours}"


def draw_attention(attention: pd.DataFrame) -> go.Figure:
    """Median microseconds of a layer with 95 % intervals, a panel for the heads of each model; floors as ticks.

    Reads attention, model, prefix, batch, budget, us and over_ours with their intervals, and floor_us. Raises
    ValueError for a missing column or no rows.
    """
    require(attention, "attention", ["attention", "model", "prefix", "batch", "budget", "us", "over_ours", "floor_us"])
    rows = attention.to_dict("records")
    sizes = [f"{row['prefix']:,} tokens, batch {row['batch']}, budget {row['budget']}" for row in rows]
    named = attention.assign(size=sizes, heads="heads of " + attention["model"])
    figure, heights = _cases(named, "attention", "heads", ATTENTION_COLOURS, (SGLANG,), "keys and values, read once")
    ratios, last = named.loc[named["attention"] == SGLANG, "over_ours"], named.iloc[-1]
    title = f"SGLang's extend kernel takes {times(ratios.min())} to {times(ratios.max())}{TIMES} as long as ours"
    if ratios.empty:
        title = f"{last['heads']}, {last['size']}: {microseconds(last['us'])} a layer"
    subtitle = "One layer of a verify. Tokens: of the prefix. Bars: 95% interval. Tick: reading keys and values once."
    return apply_layout(figure, title, subtitle, heights)


def _cases(
    frame: pd.DataFrame, case: str, panel: str, colours: Mapping[str, str], peers: Collection[str], floor: str
) -> tuple[go.Figure, list[int]]:
    """Microseconds of each case, a panel for each value of column `panel`; and the panels' heights in pixels.

    Reads the columns `case`, `panel` and size, us and over_ours with their intervals, and floor_us. `colours` orders
    the cases; `peers` are diamonds; `floor` says what a floor is.
    """
    headings, sizes = list(frame[panel].unique()), list(frame["size"].unique())
    heights = [CASE_HEIGHT * len(sizes) + 20] * len(headings)
    figure = stacked_panels(headings, heights)
    for row, heading in enumerate(headings, start=1):
        here = frame[frame[panel] == heading]
        for name in [name for name in colours if name in set(here[case])]:
            add_series(
                figure, here[here[case] == name], "us", "size", name=name, colour=colours[name], mode="markers",
                row=row, marker={"size": 9, "symbol": "diamond" if name in peers else "circle"}, error_x="us",
                hover="{x:.1f} µs ({us_lo:.1f} to {us_hi:.1f})<br>"
                "{over_ours:.2f} times ours ({over_ours_lo:.2f} to {over_ours_hi:.2f})"
            )  # fmt: skip
        marker = {"symbol": "line-ns-open", "size": 12}
        add_series(
            figure, here.drop_duplicates("size"), "floor_us", "size", name="floor", mode="markers", row=row,
            marker=marker, hover=f"{floor}: {{x:.2f}} µs"
        )  # fmt: skip
    name_rows(figure, sizes)
    figure.update_xaxes(type="log", exponentformat="none", nticks=6)
    figure.update_xaxes(title="µs", row=len(headings), col=1)
    return figure, heights


def draw_rounds(rounds: pd.DataFrame) -> go.Figure:
    """Median milliseconds of each stage, stacked; the end of a bar tells the share outside the two forwards.

    Reads model, batch, budget, stage, us and share. Raises ValueError for a missing column or no rows.
    """
    require(rounds, "rounds", ["model", "batch", "budget", "stage", "us", *interval_columns("share")])
    label = [f"{r['model']}, batch {r['batch']}, budget {r['budget']}" for r in rounds.to_dict("records")]
    named = rounds.assign(label=label, ms=rounds["us"] / 1e3)
    labels = list(named["label"].unique())
    by_stage = {stage: part.set_index("label").loc[labels] for stage, part in named.groupby("stage")}
    figure = go.Figure().update_layout(barmode="stack")
    hover = "{x:.3f} ms, {share:.1%} of the round ({us_lo:.0f} to {us_hi:.0f} µs)"
    for stage in sorted(STAGES, key=lambda stage: stage not in FORWARDS):
        colour = STAGE_COLOURS[stage]
        add_series(figure, by_stage[stage], "ms", labels, name=stage, colour=colour, mode="bar h", hover=hover)
    totals = pd.concat([by_stage[stage]["ms"] for stage in STAGES], axis=1).sum(axis=1)
    overhead = by_stage["overhead"]["share"]
    add_series(
        figure, named, totals, labels, mode="text", text=[f" {share:.1%}" for share in overhead],
        textposition="middle right", textfont={"color": INK, "size": 11}, cliponaxis=False
    )  # fmt: skip
    figure.update_xaxes(title="milliseconds per round", range=[0, 1.14 * float(totals.max())])
    name_rows(figure, labels)
    title = f"Outside the two forwards: {overhead.min():.1%} to {overhead.max():.1%} of a round"
    subtitle = "Grey: draft and verify, the models' own passes. Next to each bar: the share of all the rest."
    return apply_layout(figure, title, subtitle, BAR_HEIGHT * len(labels) + 16)


def draw_chain(chain: pd.DataFrame) -> go.Figure:
    """Tokens per second of each method with 95 % intervals, side by side at each temperature.

    Reads model, temperature, method, tokens_per_s with its interval, and over_peer. Raises ValueError for a missing
    column or no rows.
    """
    require(chain, "chain", ["model", "temperature", "method", *interval_columns("tokens_per_s")])
    models = list(chain["model"].unique())
    heights = [CHAIN_HEIGHT] * len(models)
    figure = stacked_panels(models, heights)
    for row, model in enumerate(models, start=1):
        here = chain[chain["model"] == model]
        for method in [name for name in CHAIN_COLOURS if name in set(here["method"])]:
            part = here[here["method"] == method]
            add_series(
                figure, part, part["temperature"].map(temperature_label), "tokens_per_s", name=method, row=row,
                colour=CHAIN_COLOURS[method], mode="bar", error_y="tokens_per_s", error_colour="#4D4D4D",
                hover="{y:.1f} tokens/s ({tokens_per_s_lo:.1f} to {tokens_per_s_hi:.1f}), {tokens} tokens"
            )  # fmt: skip
    figure.update_yaxes(title="tokens/s", nticks=5, rangemode="tozero")
    figure.update_xaxes(type="category")
    subtitle = "Whole calls, prefill included, on the same prompts. Bars: 95% interval over prompts."
    return apply_layout(figure, _chain_title(chain), subtitle, heights)


def _chain_title(chain: pd.DataFrame) -> str:
    trees = chain[chain["method"] == "tree"]
    rated = trees["over_peer"].dropna() if "over_peer" in trees else trees["tokens_per_s"].iloc[:0]
    if rated.empty:
        return "Tokens per second of whole calls"
    low, high = times(rated.min()), times(rated.max())
    return f"Tree over dflash_generate: {low if len(rated) == 1 else f'{low} to {high}'}{TIMES} its tokens/s"


def _sizes(frame: pd.DataFrame) -> list[str]:
    """ "V 151,936, batch 32, budget 64" of each row."""
    rows = frame.to_dict("records")
    return [f"V {row['vocab']:,}, batch {row['batch']}, budget {row['budget']}" for row in rows]
