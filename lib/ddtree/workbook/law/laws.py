"""The exact law of one verify call on fixed target rows: what the tokens and the count must be distributed as."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ddtree.draft_tree import DraftTree
from ddtree.retrieve import RetrieveTables


@dataclass(frozen=True, slots=True)
class FixedTree:
    """One tree and one probability row for each of its nodes, held still while coins are thrown again and again."""

    tokens: list[int]  # by node, the root first
    children: list[list[int]]  # by node, in link order
    depths: list[int]
    draft_probs: list[float]  # of a node given its parent, by the drafter; 1 at the root
    rows: Tensor  # float32 [nodes, V], on the CPU, as `target_probs` gives them

    @classmethod
    def of(cls, tree: DraftTree, tables: RetrieveTables, probs: Tensor, row: int = 0) -> FixedTree:
        """Row `row` of a batch, padding left out; `probs` is float32 [bs, q, V]."""
        size = int(tree.sizes[row])
        parents, logws = tree.parents[row].tolist(), tree.node_logws[row].double()
        first, following = tables.next_token[row].tolist(), tables.next_sibling[row].tolist()
        return cls(
            tokens=tree.tokens[row, :size].tolist(),
            children=[_links(first[node], following) for node in range(size)],
            depths=tree.depths[row, :size].tolist(),
            draft_probs=[1.0, *(float((logws[node] - logws[parents[node]]).exp()) for node in range(1, size))],
            rows=probs[row, :size].cpu(),
        )

    def child_tokens(self, node: int) -> list[int]:
        """Tokens of a node's children, in link order."""
        return [self.tokens[child] for child in self.children[node]]


@dataclass(frozen=True, slots=True)
class ExactLaw:
    """Probabilities of one verify call's outcomes, float64, each distribution summing to 1."""

    first: np.ndarray  # [V], the first token emitted
    second: dict[int, np.ndarray]  # by child of the root: [V], the second token once that child is accepted
    accepted: np.ndarray  # [depth + 1], the number of drafts accepted


def exact_law(fixed: FixedTree) -> ExactLaw:
    """What lossless sampling means here: the token after a node is distributed as that node's row.

    So the walk reaches a child with the probability of its parent times its own, and ends at a node with what the
    node's children leave over.
    """
    rows = torch.nn.functional.normalize(fixed.rows.double(), p=1, dim=1).numpy()
    reach = np.zeros(len(fixed.tokens))
    reach[0] = 1.0
    accepted = np.zeros(max(fixed.depths) + 1)
    for node, children in enumerate(fixed.children):  # a parent stands before its children
        shares = rows[node, fixed.child_tokens(node)]
        reach[children] = reach[node] * shares
        accepted[fixed.depths[node]] += reach[node] * max(0.0, 1.0 - shares.sum())
    return ExactLaw(
        first=rows[0],
        second={child: rows[child] for child in fixed.children[0]},
        accepted=accepted / accepted.sum(),
    )


def _links(child: int, following: list[int]) -> list[int]:
    found = []
    while child != -1:
        found.append(child)
        child = following[child]
    return found
