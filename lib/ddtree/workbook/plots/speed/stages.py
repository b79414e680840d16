"""What each stage costs against the tree's budget, a panel for each vocabulary and batch, its floor drawn in."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from ddtree.workbook.plots.frames import require
from ddtree.workbook.plots.panels import dress_panels
from ddtree.workbook.plots.speed.common import FLOOR_DASH, bars_of, microseconds, panels, size_name
from ddtree.workbook.plots.theme import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION

HEIGHT = 210  # pixels of a panel
COLOURS = {
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
    heights = [HEIGHT] * len(places)
    figure = panels([f"V {vocab:,}, batch {batch}" for vocab, batch in places], heights)
    budgets = sorted(stages["budget"].unique().tolist())
    for row, (vocab, batch) in enumerate(places, start=1):
        here = stages[(stages["vocab"] == vocab) & (stages["batch"] == batch)]
        for stage, colour in COLOURS.items():
            part = here[here["stage"] == stage].sort_values("budget")
            if not part.empty:
                _add_stage(figure, part, stage, colour, budgets, row)
    figure.update_xaxes(tickvals=list(range(len(budgets))), ticktext=[str(budget) for budget in budgets])
    figure.update_xaxes(range=[-0.3, len(budgets) - 0.7])
    figure.update_xaxes(title="tree budget", row=len(places), col=1)
    figure.update_yaxes(type="log", title="µs", nticks=6, exponentformat="none")
    in_graphs = " Open marks: in a CUDA graph." if (stages["how"] == "graph").any() else ""
    subtitle = f"Median of interleaved turns. Dotted: what moving the bytes once would take.{in_graphs}"
    return dress_panels(figure, _finding(stages), subtitle, heights, legend=True)


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


def _finding(stages: pd.DataFrame) -> str:
    """The dearest stage of ours at the largest size."""
    ours = stages[(stages["how"] == "launches") & ~stages["stage"].isin(["heap", "top-k"])]
    ours = ours.sort_values(["vocab", "batch", "budget"])
    largest = ours[(ours[["vocab", "batch", "budget"]] == ours[["vocab", "batch", "budget"]].iloc[-1]).all(axis=1)]
    dearest = largest.sort_values("us").iloc[-1]
    return f"{size_name(dearest.to_dict())}: {dearest['stage']} costs most, {microseconds(dearest['us'])}"
