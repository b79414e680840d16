"""The picture of a tree's attention mask: which keys each node may look at."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
import torch
from torch import Tensor

from ddtree.draft_tree import DraftTree
from ddtree.workbook.plots.theme import BLUE, HEADER_ROOM, INK, SKY, TIMES, dress
from ddtree.workbook.plots.token_text import plotly_text, shortened, visible_text
from ddtree.workbook.plots.tree_nodes import EDGE, FIGURE_WIDTH, LEGEND_ROW, row_of

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
    nodes = row_of(tree, row, labels)
    q, n = tree.width, len(nodes.parents)
    if mask.ndim != 2 or mask.shape[0] != q or mask.shape[1] < q:
        raise ValueError(f"mask is {list(mask.shape)}; for this tree it must be [{q}, shown + {q}].")
    shown = mask.shape[1] - q
    if prefix_labels and len(prefix_labels) != shown:
        raise ValueError(f"prefix_labels has {len(prefix_labels)} texts; mask shows {shown} prefix tokens.")
    visible = _visible(mask)[:n, : shown + n]
    prefix = [visible_text(label) for label in prefix_labels] or [f"prefix {i - shown}" for i in range(shown)]
    names = [*prefix, *(f"{i} {label}" for i, label in enumerate(nodes.labels))]
    ticks = [plotly_text(shortened(name, 12)) for name in names]
    kind = torch.where(torch.arange(shown + n) < shown, 1, 2)
    figure = go.Figure(
        go.Heatmap(
            z=torch.where(visible, kind, 0).tolist(),
            zmin=0,
            zmax=2,
            colorscale=[[0, HIDDEN], [1 / 3, HIDDEN], [1 / 3, SKY], [2 / 3, SKY], [2 / 3, BLUE], [1, BLUE]],
            showscale=False,
            xgap=1,
            ygap=1,
            customdata=[
                [
                    f"{plotly_text(names[shown + i])} {'sees' if seen else 'does not see'} {plotly_text(names[j])}"
                    for j, seen in enumerate(seen_by_node)
                ]
                for i, seen_by_node in enumerate(visible.tolist())
            ],
            hovertemplate="%{customdata}<extra></extra>",
        )
    )
    keys = (("sees a prefix token", SKY), ("sees itself or an ancestor", BLUE), ("hidden", HIDDEN))
    for name, colour in keys:
        marker = {"symbol": "square", "size": 12, "color": colour, "line": {"width": 1, "color": EDGE}}
        figure.add_trace(go.Scatter(x=[None], y=[None], mode="markers", marker=marker, name=name))
    share = visible[:, shown:].float().mean().item()
    cell = max(11, min(26, 780 // n))
    title = f"A node sees the prefix and its own branch: {share:.0%} of {n} {TIMES} {n} node pairs"
    header = HEADER_ROOM + COLUMN_LABELS
    subtitle = "Siblings never see one another."
    dress(figure, title=title, subtitle=subtitle, plot_height=n * cell, header=header, footer=LEGEND_ROW, legend_drop=8)
    font = {"size": 11 if cell >= 15 else 9}
    column = {"tickvals": list(range(shown + n)), "ticktext": ticks, "tickangle": -90, "side": "top"}
    line = {"tickvals": list(range(n)), "ticktext": ticks[shown:], "autorange": "reversed", "scaleanchor": "x"}
    bare = {"tickfont": font, "showgrid": False, "zeroline": False, "ticks": "", "constrain": "domain"}
    figure.update_xaxes(range=[-0.5, shown + n - 0.5], title="key: prefix token, then node", **column, **bare)
    figure.update_yaxes(title="query: node", **line, **bare)
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
