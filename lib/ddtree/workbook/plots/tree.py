"""Pictures of one draft tree: the tree itself, its retrieve links, and its table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pandas as pd
import plotly.graph_objects as go
from torch import Tensor

from ddtree.draft_tree import DraftTree
from ddtree.retrieve import RetrieveTables
from ddtree.workbook.plots.theme import ACCENT, BLUE, GREY, ORANGE, dress
from ddtree.workbook.plots.token_text import plotly_text
from ddtree.workbook.plots.tree_layout import LABEL_OFFSET, PHONE, TreeLayout, fit_layout
from ddtree.workbook.plots.tree_nodes import EDGE, FIGURE_WIDTH, LEGEND_ROW, Nodes, row_of

SMALLEST, LARGEST = 6.0, 26.0  # diameters of nodes, pixels, at probability 0 and 1
EDGE_STEPS = 20  # straight pieces of a curved edge
LEVEL_HEIGHT, DENSE_LEVEL_HEIGHT = 64, 46  # pixels from one depth to the next, in shallow and in deep trees
LEAST_HEIGHT = 180  # pixels of a plot, as long as its upright axis title
SAG = 0.28  # how far, in depths, a sibling link hangs below its ends

Point = tuple[float, float]


def draw_tree(
    tree: DraftTree, row: int = 0, *, labels: Sequence[str], path: Sequence[int] = (), title: str
) -> go.Figure:
    """The tree of `row`, root on top, siblings from left to right by descending log-weight.

    The diameter of a node grows with the square root of its cumulative draft probability. Where there is no room
    for every label, the least likely nodes show theirs only when pointed at.

    Args:
        labels: token texts in node order, as the tokenizer decodes them; at least one for each node of the row.
        path: accepted nodes from the root on, each the parent of the next; -1 (padding of `Commit.path`) is skipped.

    Raises:
        ValueError: no such row, too few labels, or a path that does not follow the tree.
    """
    nodes = row_of(tree, row, labels)
    accepted = _checked_path(nodes, path)
    layout = _fitted(nodes, nodes.labels, accepted)
    figure = go.Figure()
    drafted = [i for i in range(1, len(nodes.parents)) if i not in accepted]
    taken = [i for i in accepted if i > 0]
    figure.add_trace(_edges(nodes, layout, drafted, EDGE, 1.2))
    figure.add_trace(_edges(nodes, layout, taken, ACCENT, 3.5))
    groups = (("last committed token", [0], GREY), ("drafted", drafted, BLUE), ("accepted", taken, ACCENT))
    for name, members, colour in groups:
        if members:
            figure.add_trace(_marks(nodes, layout, members, name, colour))
    subtitle = "The larger a node, the likelier its prefix under the drafter."
    return _framed(figure, nodes, layout, title, subtitle)


def draw_links(
    tree: DraftTree, tables: RetrieveTables, row: int = 0, *, labels: Sequence[str], title: str
) -> go.Figure:
    """The tree of `row` as the verify walks it: first-child links solid, next-sibling links dotted, nodes numbered.

    Show `tree_table` beside it: its columns hold the same links as numbers. Raises ValueError as `draw_tree`.
    """
    nodes = row_of(tree, row, labels)
    numbered = [f"{i} {label}" for i, label in enumerate(nodes.labels)]
    layout = _fitted(nodes, numbered, [])
    children, siblings = _links(tables.next_token, row, nodes), _links(tables.next_sibling, row, nodes)
    figure = go.Figure()
    for name, links, colour, dash, curve in (
        ("first child", children, BLUE, "solid", _descent),
        ("next sibling", siblings, ORANGE, "dot", _sag),
    ):
        xs, ys = _curves(nodes, layout, links, curve)
        line = {"color": colour, "width": 2, "dash": dash}
        figure.add_trace(go.Scatter(x=xs, y=ys, mode="lines", line=line, name=name, hoverinfo="skip"))
    members = list(range(len(nodes.parents)))
    figure.add_trace(_marks(nodes, layout, members, "node", GREY))
    subtitle = "The verify tries siblings along the dotted links and descends at the first it accepts."
    return _framed(figure, nodes, layout, title, subtitle)


def tree_table(tree: DraftTree, tables: RetrieveTables, labels: Sequence[str], row: int = 0) -> pd.DataFrame:
    """One line a node: its text (whitespace shown), place, links (-1 for none), log-weight in nats and probability.

    Columns: node, token, parent, depth, first child, next sibling, log-weight, probability. Raises ValueError for
    no such row or too few labels.
    """
    nodes = row_of(tree, row, labels)
    n = len(nodes.parents)
    return pd.DataFrame(
        {
            "node": range(n),
            "token": nodes.labels,
            "parent": nodes.parents,
            "depth": nodes.depths,
            "first child": tables.next_token[row, :n].tolist(),
            "next sibling": tables.next_sibling[row, :n].tolist(),
            "log-weight": nodes.logws,
            "probability": nodes.probabilities,
        }
    )


def _checked_path(nodes: Nodes, path: Sequence[int]) -> list[int]:
    accepted = [int(node) for node in path if node != -1]
    before = -1
    for node in accepted:
        if not 0 <= node < len(nodes.parents) or nodes.parents[node] != before:
            place = "it must begin at the root, 0" if before < 0 else f"node {node} is no child of node {before}"
            raise ValueError(f"path is {accepted}, but {place}.")
        before = node
    return accepted


def _fitted(nodes: Nodes, labels: Sequence[str], accepted: Sequence[int]) -> TreeLayout:
    diameters = [_diameter(p) for p in nodes.probabilities]
    return fit_layout(nodes.parents, nodes.logws, labels, diameters, labelled_first=accepted)


def _diameter(probability: float) -> float:
    return SMALLEST + (LARGEST - SMALLEST) * math.sqrt(probability)


def _marks(nodes: Nodes, layout: TreeLayout, members: list[int], name: str, colour: str) -> go.Scatter:
    probabilities, conditionals = nodes.probabilities, nodes.conditionals
    return go.Scatter(
        x=[layout.x[i] for i in members],
        y=[nodes.depths[i] for i in members],
        mode="markers",
        name=name,
        marker={
            "size": [_diameter(probabilities[i]) for i in members],
            "color": colour,
            "opacity": 1,
            "line": {"width": 0},
        },
        customdata=[
            [
                i,
                plotly_text(nodes.labels[i]),
                nodes.tokens[i],
                nodes.depths[i],
                nodes.parents[i] if i else "none",
                probabilities[i],
                conditionals[i],
            ]
            for i in members
        ],
        hovertemplate=(
            "<b>%{customdata[1]}</b><br>node %{customdata[0]}, token %{customdata[2]}<br>"
            "depth %{customdata[3]}, parent %{customdata[4]}<br>probability of the prefix %{customdata[5]:.3g}<br>"
            "given the parent %{customdata[6]:.3g}<extra></extra>"
        ),
    )


def _edges(nodes: Nodes, layout: TreeLayout, children: Sequence[int], colour: str, width: float) -> go.Scatter:
    xs, ys = _curves(nodes, layout, [(nodes.parents[i], i) for i in children], _descent)
    line = {"color": colour, "width": width}
    return go.Scatter(x=xs, y=ys, mode="lines", line=line, hoverinfo="skip", showlegend=False)


def _links(table: Tensor, row: int, nodes: Nodes) -> list[tuple[int, int]]:
    return [(i, j) for i, j in enumerate(table[row, : len(nodes.parents)].tolist()) if j >= 0]


def _curves(
    nodes: Nodes, layout: TreeLayout, links: Sequence[tuple[int, int]], curve: Callable[[Point, Point], list[Point]]
) -> tuple[list[float | None], list[float | None]]:
    """Coordinates of one curve for each link, None after each, as a plotly line takes them."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    for start, end in links:
        points = curve((layout.x[start], nodes.depths[start]), (layout.x[end], nodes.depths[end]))
        xs += [*(x for x, _ in points), None]
        ys += [*(y for _, y in points), None]
    return xs, ys


def _descent(start: Point, end: Point) -> list[Point]:
    """From parent to child, upright at both ends, so that it clears the labels at the nodes' right."""
    shares = [step / EDGE_STEPS for step in range(EDGE_STEPS + 1)]
    return [(start[0] + (end[0] - start[0]) * t * t * (3 - 2 * t), start[1] + (end[1] - start[1]) * t) for t in shares]


def _sag(start: Point, end: Point) -> list[Point]:
    """From sibling to sibling, hanging below the labels between them."""
    shares = [step / EDGE_STEPS for step in range(EDGE_STEPS + 1)]
    return [(start[0] + (end[0] - start[0]) * t, start[1] + SAG * (1 - (2 * t - 1) ** 4)) for t in shares]


def _framed(figure: go.Figure, nodes: Nodes, layout: TreeLayout, title: str, subtitle: str) -> go.Figure:
    """Labels, axes and size. Labels are annotations: their distance from a node is in pixels, as in the layout."""
    radii = [_diameter(p) / 2 for p in nodes.probabilities]
    for i, label in enumerate(layout.labels):
        if label:
            figure.add_annotation(
                x=layout.x[i],
                y=nodes.depths[i],
                text=plotly_text(label),
                showarrow=False,
                xanchor="left",
                xshift=radii[i] + LABEL_OFFSET - 1,  # an annotation pads its text by 1
                font={"size": layout.font_size},
            )
    deepest = max(nodes.depths)
    spacing = LEVEL_HEIGHT if deepest <= 8 else DENSE_LEVEL_HEIGHT
    height = max(LEAST_HEIGHT, round(spacing * (deepest + 0.9)))
    dress(figure, title=title, subtitle=subtitle, plot_height=height, footer=LEGEND_ROW, legend_drop=0)
    figure.update_xaxes(range=[0, layout.width], visible=False)
    figure.update_yaxes(
        range=[deepest + 0.5, -0.4], dtick=1, title="depth: tokens after the root", showgrid=False, zeroline=False
    )
    width = FIGURE_WIDTH if layout.width > PHONE else None  # None: as wide as the page
    return figure.update_layout(width=width, legend_itemsizing="constant")
