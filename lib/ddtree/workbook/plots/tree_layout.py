"""Where the nodes of a tree stand: a tidy layered layout in which no node or label touches another of its depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddtree.workbook.plots.token_text import shortened, text_width

GAP = 9.0  # pixels between a label and the next node
LABEL_OFFSET = 3.0  # pixels between a node's rim and its label
LONGEST_LABEL = 10  # characters
PHONE, TABLET, PAGE = 300.0, 540.0, 840.0  # pixels of the drawing in a figure of 390, 640 and 940
SIZES = (
    (PHONE, 12),
    (PHONE, 11),
    (TABLET, 13),
    (TABLET, 12),
    (TABLET, 11),
    (PAGE, 12),
    (PAGE, 11),
    (PAGE, 10),
    (PAGE, 9),
)


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
    texts = [shortened(label, LONGEST_LABEL) for label in labels]
    for width, font_size in SIZES:
        layout = _layout(parents, weights, texts, diameters, font_size)
        if layout.width <= width:
            return _centred(layout, width)
    width, font_size = SIZES[-1]
    shown = [""] * len(texts)
    layout = _layout(parents, weights, shown, diameters, font_size)
    for node in sorted(range(len(texts)), key=lambda i: (i not in labelled_first, -weights[i], i)):
        shown[node] = texts[node]
        longer = _layout(parents, weights, shown, diameters, font_size)
        if longer.width <= width:
            layout = longer
        else:
            shown[node] = ""
    return _centred(layout, max(width, layout.width))


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
            offsets[child] = max((placed[1] - new[0] + GAP for placed, new in near), default=0.0)
            below = _joined(below, _moved(outlines[child], offsets[child]))
        if children[node]:
            middle = (offsets[children[node][0]] + offsets[children[node][-1]]) / 2
            below = _moved(below, -middle)
            for child in children[node]:
                offsets[child] -= middle
        outlines[node] = [(-left[node], right[node]), *below]
    x = [-min(reach[0] for reach in outlines[0])]
    for node in range(1, len(parents)):
        x.append(x[parents[node]] + offsets[node])
    return x


def _moved(outline: Sequence[tuple[float, float]], by: float) -> list[tuple[float, float]]:
    return [(low + by, high + by) for low, high in outline]


def _joined(first: list[tuple[float, float]], second: list[tuple[float, float]]) -> list[tuple[float, float]]:
    both = [(min(a[0], b[0]), max(a[1], b[1])) for a, b in zip(first, second, strict=False)]
    return both + first[len(both) :] + second[len(both) :]


def _layout(
    parents: Sequence[int], weights: Sequence[float], labels: list[str], diameters: Sequence[float], font_size: int
) -> TreeLayout:
    left = [diameter / 2 for diameter in diameters]
    right = [
        rim + (LABEL_OFFSET + text_width(label, font_size) if label else 0.0)
        for rim, label in zip(left, labels, strict=True)
    ]
    x = tidy_positions(parents, weights, left, right)
    width = max(centre + reach for centre, reach in zip(x, right, strict=True))
    return TreeLayout(x, list(labels), font_size, width)


def _centred(layout: TreeLayout, width: float) -> TreeLayout:
    spare = (width - layout.width) / 2
    return TreeLayout([x + spare for x in layout.x], layout.labels, layout.font_size, width)
