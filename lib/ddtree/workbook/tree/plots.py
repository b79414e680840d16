"""Draws one draft tree: its nodes in a tidy layered layout, its links, its attention mask, and a table of its nodes.

Siblings stand from left to right by descending log-weight, as the verify tries them; padding is never drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import torch
from torch import Tensor

from ddtree.retrieve import RetrieveTables
from ddtree.tree import DraftTree
from ddtree.workbook.theme import (
    ACCENT,
    BLUE,
    GREY,
    HEADER_ROOM,
    INK,
    ORANGE,
    SKY,
    TIMES,
    add_series,
    apply_layout,
    named_ticks,
    plotly_text,
    shortened,
    text_width,
    visible_text,
)

FIGURE_WIDTH = 940  # pixels of what no phone can show whole, JupyterLab beside its file browser can; else it scrolls
EDGE = "rgba(127, 127, 127, 0.7)"
LEGEND_ROW = 48  # pixels under a plot that has nothing but a legend there
SMALLEST, LARGEST = 6.0, 26.0  # diameters of nodes, pixels, at probability 0 and 1


def nodes_of(tree: DraftTree, row: int, labels: Sequence[str]) -> pd.DataFrame:
    """One line for each node of one row; raises ValueError for no such row, or too few labels.

    Columns node, token (its text, whitespace shown), id, parent, depth, log-weight (nats), probability (of the
    prefix), given (its parent; 1 at the root) and diameter (pixels).
    """
    if not 0 <= row < tree.batch_size:
        raise ValueError(f"row is {row}; the batch has rows 0..{tree.batch_size - 1}.")
    n = int(tree.sizes[row])
    if len(labels) < n:
        raise ValueError(f"labels has {len(labels)} texts; the tree of row {row} has {n} nodes.")
    columns = {"id": tree.tokens, "parent": tree.parents, "depth": tree.depths, "log-weight": tree.node_logws}
    nodes = pd.DataFrame({name: column[row, :n].tolist() for name, column in columns.items()})
    weights = nodes["log-weight"].to_numpy()
    probability = np.exp(weights)
    return nodes.assign(
        node=range(n),
        token=[visible_text(label) for label in labels[:n]],
        probability=probability,
        given=np.exp(weights - weights[nodes["parent"].clip(lower=0)]),
        diameter=SMALLEST + (LARGEST - SMALLEST) * np.sqrt(probability),
    )


GAP = 9.0  # pixels between a label and the next node
LABEL_OFFSET = 3.0  # pixels between a node's rim and its label
LONGEST_LABEL = 10  # characters
PHONE, TABLET, PAGE = 300.0, 540.0, 840.0  # pixels of the drawing in a figure of 390, 640 and 940
FONT_SIZES = {PHONE: (12, 11), TABLET: (13, 12, 11), PAGE: (12, 11, 10, 9)}  # of labels, tried in this order


@dataclass(frozen=True, slots=True)
class TreeLayout:
    """Positions in pixels of a drawing `width` wide, the labels shown ("" where one is hidden), and their size."""

    x: list[float]
    labels: list[str]
    font_size: int
    width: float


def fit_layout(
    parents: Sequence[int],
    weights: Sequence[float],
    labels: Sequence[str],
    diameters: Sequence[float],
    *,
    labelled_first: Sequence[int] = (),
) -> TreeLayout:
    """The largest labels that fit a phone, tablet or page, in this order; else as many as fit, the likeliest first.

    `parents` (-1 at the root, a parent before its children), `weights` (siblings stand by descending weight),
    `labels` and `diameters` (pixels) hold one value for each node; the nodes `labelled_first` go before all others.
    A tree too wide for a page even without labels gets the width it needs.
    """
    left = [diameter / 2 for diameter in diameters]

    def drawn(labels: Sequence[str], font_size: int, page: float) -> TreeLayout:
        """The drawing in the middle of a page, or as wide as it has to be."""
        texts = [LABEL_OFFSET + text_width(label, font_size) if label else 0.0 for label in labels]
        right = [rim + text for rim, text in zip(left, texts, strict=True)]
        x = tidy_positions(parents, weights, left, right)
        width = max(centre + reach for centre, reach in zip(x, right, strict=True))
        margin = max(0.0, page - width) / 2
        return TreeLayout([centre + margin for centre in x], list(labels), font_size, max(page, width))

    texts = [shortened(label, LONGEST_LABEL) for label in labels]
    for page, font_size in ((page, size) for page, sizes in FONT_SIZES.items() for size in sizes):
        layout = drawn(texts, font_size, page)
        if layout.width <= page:
            return layout
    shown = [""] * len(texts)
    layout = drawn(shown, font_size, page)
    for node in sorted(range(len(texts)), key=lambda i: (i not in labelled_first, -weights[i], i)):
        shown[node] = texts[node]
        longer = drawn(shown, font_size, page)
        if longer.width <= page:
            layout = longer
        else:
            shown[node] = ""
    return layout


def tidy_positions(
    parents: Sequence[int], weights: Sequence[float], left: Sequence[float], right: Sequence[float]
) -> list[float]:
    """Reingold and Tilford's layout for nodes that reach `left[i]` and `right[i]` from their centre.

    Children stand by descending weight, a parent midway between its first and its last child, and subtrees as
    close as the outlines of all their depths allow. The drawing begins at 0.
    """
    children: list[list[int]] = [[] for _ in parents]
    for node in sorted(range(1, len(parents)), key=lambda i: (-weights[i], i)):
        children[parents[node]].append(node)
    offsets = [0.0] * len(parents)  # from the parent
    outlines: list[list[tuple[float, float]]] = [[] for _ in parents]  # reach of the subtree at each depth below
    for node in reversed(range(len(parents))):
        below: list[tuple[float, float]] = []
        for child in children[node]:
            near = zip(below, outlines[child], strict=False)
            by = offsets[child] = max((placed[1] - new[0] + GAP for placed, new in near), default=0.0)
            moved = [(low + by, high + by) for low, high in outlines[child]]
            both = [(placed[0], new[1]) for placed, new in zip(below, moved, strict=False)]
            below = both + below[len(both) :] + moved[len(both) :]
        if children[node]:
            middle = (offsets[children[node][0]] + offsets[children[node][-1]]) / 2
            below = [(low - middle, high - middle) for low, high in below]
            for child in children[node]:
                offsets[child] -= middle
        outlines[node] = [(-left[node], right[node]), *below]
    x = [-min(reach[0] for reach in outlines[0])]
    for node in range(1, len(parents)):
        x.append(x[parents[node]] + offsets[node])
    return x


LEVEL_HEIGHT, DENSE_LEVEL_HEIGHT = 64, 46  # pixels from one depth to the next, in shallow and in deep trees
LEAST_HEIGHT = 180  # pixels of a plot, as long as its upright axis title
SAG = 0.28  # how far, in depths, a sibling link hangs below its ends
ALONG = np.linspace(0, 1, 21)  # the share of the way at each point of a curve
# How far across it is there, as a share, and how far below the straight way, in depths: from parent to child upright at
# both ends, to clear the labels at the nodes' right; from sibling to sibling below the labels between them.
Curve = tuple[np.ndarray, np.ndarray]
DESCENDING: Curve = (ALONG**2 * (3 - 2 * ALONG), 0 * ALONG)
HANGING: Curve = (ALONG, SAG * (1 - (2 * ALONG - 1) ** 4))


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
    nodes = nodes_of(tree, row, labels)
    accepted = _checked_path(nodes, path)
    nodes, layout = _placed(nodes, nodes["token"], accepted)
    drafted = [i for i in range(1, len(nodes)) if i not in accepted]
    taken = [i for i in accepted if i > 0]
    figure = go.Figure()
    for members, colour, width in ((drafted, EDGE, 1.2), (taken, ACCENT, 3.5)):
        edges = zip(nodes["parent"][members], members, strict=True)
        _add_curves(figure, nodes, edges, DESCENDING, colour=colour, line={"width": width})
    for name, members, colour in (
        ("last committed token", [0], GREY),
        ("drafted", drafted, BLUE),
        ("accepted", taken, ACCENT),
    ):
        if members:
            _add_marks(figure, nodes, members, name, colour)
    return _framed(figure, nodes, layout, title, "The larger a node, the likelier its prefix under the drafter.")


def draw_links(
    tree: DraftTree, tables: RetrieveTables, row: int = 0, *, labels: Sequence[str], title: str
) -> go.Figure:
    """The tree of `row` as the verify walks it: first-child links solid, next-sibling links dotted, nodes numbered.

    Show `tree_table` beside it: its columns hold the same links as numbers. Raises ValueError as `draw_tree`.
    """
    nodes = nodes_of(tree, row, labels)
    nodes, layout = _placed(nodes, [f"{i} {token}" for i, token in enumerate(nodes["token"])])
    figure = go.Figure()
    for name, table, colour, dash, curve in (
        ("first child", tables.next_token, BLUE, "solid", DESCENDING),
        ("next sibling", tables.next_sibling, ORANGE, "dot", HANGING),
    ):
        links = ((i, j) for i, j in enumerate(table[row, : len(nodes)].tolist()) if j >= 0)
        _add_curves(figure, nodes, links, curve, name=name, colour=colour, line={"dash": dash})
    _add_marks(figure, nodes, list(nodes.index), "node", GREY)
    subtitle = "The verify tries siblings along the dotted links and descends at the first it accepts."
    return _framed(figure, nodes, layout, title, subtitle)


def tree_table(tree: DraftTree, tables: RetrieveTables, labels: Sequence[str], row: int = 0) -> pd.DataFrame:
    """One line a node: its text (whitespace shown), place, links (-1 for none), log-weight in nats and probability.

    Columns: node, token, parent, depth, first child, next sibling, log-weight, probability. Raises ValueError for
    no such row or too few labels.
    """
    nodes = nodes_of(tree, row, labels)
    for name, table in (("first child", tables.next_token), ("next sibling", tables.next_sibling)):
        nodes[name] = table[row, : len(nodes)].tolist()
    places = ["node", "token", "parent", "depth", "first child", "next sibling"]
    return nodes[[*places, "log-weight", "probability"]]


def _checked_path(nodes: pd.DataFrame, path: Sequence[int]) -> list[int]:
    accepted = [int(node) for node in path if node != -1]
    before = -1
    for node in accepted:
        if not 0 <= node < len(nodes) or nodes["parent"][node] != before:
            place = "it must begin at the root, 0" if before < 0 else f"node {node} is not a child of node {before}"
            raise ValueError(f"path is {accepted}, but {place}.")
        before = node
    return accepted


def _placed(
    nodes: pd.DataFrame, labels: Iterable[str], accepted: Sequence[int] = ()
) -> tuple[pd.DataFrame, TreeLayout]:
    """The nodes with their place, as x in pixels, and the layout that it is from."""
    parents, weights, diameters = (nodes[name].tolist() for name in ("parent", "log-weight", "diameter"))
    layout = fit_layout(parents, weights, list(labels), diameters, labelled_first=accepted)
    return nodes.assign(x=layout.x), layout


def _add_marks(figure: go.Figure, nodes: pd.DataFrame, members: list[int], name: str, colour: str) -> None:
    above = nodes["parent"].astype(object).where(nodes["parent"] >= 0, "none")
    part = nodes.assign(shown=nodes["token"].map(plotly_text), above=above).loc[members]
    hover = (
        "<b>{shown}</b><br>node {node}, token {id}<br>depth {depth}, parent {above}<br>"
        "probability of the prefix {probability:.3g}<br>given the parent {given:.3g}"
    )
    marker = {"size": part["diameter"].tolist(), "opacity": 1, "line": {"width": 0}}
    add_series(
        figure, part, "x", "depth", name=name, colour=colour, mode="markers", marker=marker, hover=hover, extra=""
    )


def _add_curves(
    figure: go.Figure, nodes: pd.DataFrame, links: Iterable[tuple[int, int]], curve: Curve, **style: Any
) -> None:
    """One curve for each link, None after each, as a plotly line takes them."""
    across, below = curve
    x, depth = nodes["x"].to_numpy(), nodes["depth"].to_numpy()
    xs: list[float | None] = []
    ys: list[float | None] = []
    for i, j in links:
        xs += [*(x[i] + (x[j] - x[i]) * across).tolist(), None]
        ys += [*(depth[i] + (depth[j] - depth[i]) * ALONG + below).tolist(), None]
    add_series(figure, nodes, xs, ys, mode="lines", **style)


def _framed(figure: go.Figure, nodes: pd.DataFrame, layout: TreeLayout, title: str, subtitle: str) -> go.Figure:
    """Labels, axes and size. Labels are annotations: their distance from a node is in pixels, as in the layout."""
    for x, depth, diameter, label in zip(layout.x, nodes["depth"], nodes["diameter"], layout.labels, strict=True):
        if label:
            figure.add_annotation(
                x=x,
                y=depth,
                text=plotly_text(label),
                showarrow=False,
                xanchor="left",
                xshift=diameter / 2 + LABEL_OFFSET - 1,  # an annotation pads its text by 1
                font={"size": layout.font_size},
            )
    deepest = int(nodes["depth"].max())
    spacing = LEVEL_HEIGHT if deepest <= 8 else DENSE_LEVEL_HEIGHT
    height = max(LEAST_HEIGHT, round(spacing * (deepest + 0.9)))
    apply_layout(figure, title, subtitle, height, footer=LEGEND_ROW, legend_drop=0, narrow=False)
    figure.update_xaxes(range=[0, layout.width], visible=False)
    figure.update_yaxes(
        range=[deepest + 0.5, -0.4], dtick=1, title="depth: tokens after the root", showgrid=False, zeroline=False
    )
    width = FIGURE_WIDTH if layout.width > PHONE else None  # None: as wide as the page
    return figure.update_layout(width=width, legend_itemsizing="constant")


HIDDEN = "rgba(128, 128, 128, 0.1)"  # nearly the page's own colour, light or dark
COLUMN_LABELS = 90  # pixels above a mask for upright labels and the axis title


def draw_mask(
    mask: Tensor, tree: DraftTree, row: int = 0, *, labels: Sequence[str], prefix_labels: Sequence[str] = ()
) -> go.Figure:
    """Which keys each node may look at; rows are nodes as queries, columns the end of the prefix, then the nodes.

    Args:
        mask: [q, shown + q], Boolean (True where visible) or additive float (0 where visible, hugely negative
            elsewhere), as `tree_attention_mask(...)[row, 0, :, -(shown + q):]` gives it.
        labels: token texts in node order, at least one for each node of the row.
        prefix_labels: texts of the `shown` prefix tokens; without them they are numbered -1, -2, ... from the root.

    Raises:
        ValueError: a shape, a float mask that is not additive, no such row, or a number of labels that does not fit.
    """
    nodes = nodes_of(tree, row, labels)
    q, n = tree.width, len(nodes)
    if mask.ndim != 2 or mask.shape[0] != q or mask.shape[1] < q:
        raise ValueError(f"mask is {list(mask.shape)}; for this tree it must be [{q}, shown + {q}].")
    shown = mask.shape[1] - q
    if prefix_labels and len(prefix_labels) != shown:
        raise ValueError(f"prefix_labels has {len(prefix_labels)} texts; mask shows {shown} prefix tokens.")
    visible = _visible(mask)[:n, : shown + n]
    prefix = [visible_text(label) for label in prefix_labels] or [f"prefix {i - shown}" for i in range(shown)]
    names = [*prefix, *(f"{i} {label}" for i, label in enumerate(nodes["token"]))]
    ticks = [plotly_text(shortened(name, 12)) for name in names]
    kind = torch.where(torch.arange(shown + n) < shown, 1, 2)
    whole = [plotly_text(name) for name in names]
    said = [
        [f"{query} {'sees' if seen else 'does not see'} {key}" for key, seen in zip(whole, line, strict=True)]
        for query, line in zip(whole[shown:], visible.tolist(), strict=True)
    ]
    colours = [[0, HIDDEN], [1 / 3, HIDDEN], [1 / 3, SKY], [2 / 3, SKY], [2 / 3, BLUE], [1, BLUE]]
    style = {"zmin": 0, "zmax": 2, "colorscale": colours, "showscale": False, "xgap": 1, "ygap": 1}
    cells = torch.where(visible, kind, 0).tolist()
    figure = go.Figure(go.Heatmap(z=cells, customdata=said, hovertemplate="%{customdata}<extra></extra>", **style))
    marker = {"symbol": "square", "size": 12, "line": {"width": 1, "color": EDGE}}
    for name, colour in (("sees a prefix token", SKY), ("sees itself or an ancestor", BLUE), ("hidden", HIDDEN)):
        add_series(figure, nodes, [None], [None], name=name, colour=colour, mode="markers", marker=marker)
    cell = max(11, min(26, 780 // n))
    share = visible[:, shown:].float().mean()
    title = f"A node sees the prefix and its own branch: {share:.0%} of {n} {TIMES} {n} node pairs"
    header = HEADER_ROOM + COLUMN_LABELS
    subtitle = "Siblings never see one another."
    apply_layout(figure, title, subtitle, n * cell, header=header, footer=LEGEND_ROW, legend_drop=8, narrow=False)
    font = {"size": 11 if cell >= 15 else 9}
    column = {**named_ticks(ticks), "tickangle": -90, "side": "top"}
    upright = {**named_ticks(ticks[shown:]), "autorange": "reversed", "scaleanchor": "x"}
    bare = {"tickfont": font, "showgrid": False, "zeroline": False, "ticks": "", "constrain": "domain"}
    figure.update_xaxes(range=[-0.5, shown + n - 0.5], title="key: prefix token, then node", **column, **bare)
    figure.update_yaxes(title="query: node", **upright, **bare)
    figure.add_vline(x=shown - 0.5, line={"color": INK, "width": 1.5})
    return figure.update_layout(width=FIGURE_WIDTH, legend_itemsizing="constant")


def _visible(mask: Tensor) -> Tensor:
    if mask.dtype == torch.bool:
        return mask.cpu()
    visible = mask.cpu() == 0
    least = mask.cpu()[~visible]
    if not mask.is_floating_point() or bool((least > -1e4).any()):
        raise ValueError("mask must be Boolean, or float with 0 where visible and at most -1e4 elsewhere.")
    return visible
