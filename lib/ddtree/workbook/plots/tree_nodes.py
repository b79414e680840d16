"""One tree of a batch as plain lists, and what its pictures share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ddtree.draft_tree import DraftTree
from ddtree.workbook.plots.token_text import visible_text

FIGURE_WIDTH = 940  # pixels of what no phone can show whole, JupyterLab beside its file browser can; else it scrolls
EDGE = "rgba(127, 127, 127, 0.7)"
LEGEND_ROW = 48  # pixels under a plot that has nothing but a legend there


@dataclass(frozen=True, slots=True)
class Nodes:
    """One row of a batch as lists without padding; `labels` show whitespace."""

    tokens: list[int]
    parents: list[int]
    depths: list[int]
    logws: list[float]
    labels: list[str]

    @property
    def probabilities(self) -> list[float]:
        return [math.exp(logw) for logw in self.logws]

    @property
    def conditionals(self) -> list[float]:
        """Each token's probability after its parent; 1 at the root."""
        logws, parents = self.logws, self.parents
        return [1.0 if p < 0 else math.exp(logws[i] - logws[p]) for i, p in enumerate(parents)]


def row_of(tree: DraftTree, row: int, labels: Sequence[str]) -> Nodes:
    """The nodes of one row. Raises ValueError for no such row, or too few labels."""
    if not 0 <= row < tree.batch_size:
        raise ValueError(f"row is {row}; the batch has rows 0..{tree.batch_size - 1}.")
    n = int(tree.sizes[row])
    if len(labels) < n:
        raise ValueError(f"labels has {len(labels)} texts; the tree of row {row} has {n} nodes.")
    columns = (tree.tokens, tree.parents, tree.depths, tree.node_logws)
    tokens, parents, depths, logws = (column[row, :n].tolist() for column in columns)
    return Nodes(tokens, parents, depths, logws, [visible_text(label) for label in labels[:n]])
