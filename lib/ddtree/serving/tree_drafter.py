"""From the drafter's hidden rows to a tree, its tables and what its nodes see, in buffers that a CUDA graph fills.

Invariant: nothing here waits for the device or depends on a value of it, so the whole of it is captured behind the
drafter's own forward, and a batch that no graph fits runs the same lines.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ddtree.retrieve import RetrieveTables, compile_retrieve, tree_visibility
from ddtree.tree import DraftTree, build_tree


@dataclass(frozen=True, slots=True)
class Drafted:
    """A batch's trees and what the verify needs of them."""

    tree: DraftTree
    tables: RetrieveTables
    visible: Tensor  # bool [bs, q, q]

    @classmethod
    def of(cls, tree: DraftTree) -> Drafted:
        return cls(tree, compile_retrieve(tree), tree_visibility(tree))


class TreeDrafter:
    """Row 0 of a block is the root, rows 1.. are the drafts' positions; the target's head gives their logits.

    Args:
        head: [V, hidden], the target's output embedding, floating point.
        block: rows of a block, drafts + 1.
    """

    def __init__(self, head: Tensor, *, block: int, budget: int, topk_cap: int, temperature: float) -> None:
        self.head = head.detach()
        self.block = block
        self.budget = budget
        self.topk_cap = topk_cap
        self.temperature = temperature
        self.filled: Drafted | None = None

    def reserve(self, most: int) -> None:
        """Buffers for batches of up to `most` requests, which graphs captured from now on fill."""
        one = torch.zeros(self.block, self.head.shape[1], dtype=self.head.dtype, device=self.head.device)
        root = torch.zeros(1, dtype=torch.int64, device=self.head.device)
        self.filled = _enlarged(self.draft(one, root), most)

    @torch.no_grad()
    def draft(self, hidden: Tensor, roots: Tensor) -> Drafted:
        """`hidden` [bs * block, hidden], `roots` int64 [bs]."""
        rows = hidden.view(-1, self.block, hidden.shape[-1])[:, 1:].to(self.head.dtype)
        return Drafted.of(
            build_tree(
                rows @ self.head.T,
                roots.contiguous(),  # a block's first column has the block's stride; kernels read one after another
                budget=self.budget,
                topk_cap=self.topk_cap,
                draft_temperature=self.temperature,
            )
        )

    def __call__(self, hidden: Tensor, input_ids: Tensor) -> None:
        """What a graph runs behind the drafter's forward: fill the buffers' first rows."""
        if self.filled is None:
            raise RuntimeError("TreeDrafter.reserve must be called before a graph is captured.")
        roots = input_ids.view(-1, self.block)[:, 0]
        for kept, new in zip(_changing(self.filled), _changing(self.draft(hidden, roots)), strict=True):
            kept[: len(roots)].copy_(new)

    def read(self, batch_size: int) -> Drafted:
        """The first `batch_size` trees of the last replay; views, so use them before the next one."""
        if self.filled is None:
            raise RuntimeError("TreeDrafter.reserve must be called before its buffers are read.")
        tree, tables = self.filled.tree, self.filled.tables
        return Drafted(
            DraftTree(
                tokens=tree.tokens[:batch_size],
                parents=tree.parents[:batch_size],
                depths=tree.depths[:batch_size],
                node_logws=tree.node_logws[:batch_size],
                sizes=tree.sizes[:batch_size],
                max_depth=tree.max_depth,
            ),
            RetrieveTables(
                index=tables.index[:batch_size],
                next_token=tables.next_token[:batch_size],
                next_sibling=tables.next_sibling[:batch_size],
            ),
            self.filled.visible[:batch_size],
        )


def _enlarged(drafted: Drafted, most: int) -> Drafted:
    def room(tensor: Tensor) -> Tensor:
        return tensor.new_zeros(most, *tensor.shape[1:])

    tree, tables = drafted.tree, drafted.tables
    return Drafted(
        DraftTree(
            tokens=room(tree.tokens),
            parents=room(tree.parents),
            depths=room(tree.depths),
            node_logws=room(tree.node_logws),
            sizes=room(tree.sizes),
            max_depth=tree.max_depth,
        ),
        RetrieveTables(
            index=torch.arange(most * tree.width, device=tree.tokens.device).view(most, tree.width),
            next_token=room(tables.next_token),
            next_sibling=room(tables.next_sibling),
        ),
        room(drafted.visible),
    )


def _changing(drafted: Drafted) -> list[Tensor]:
    """All but `tables.index`, which is the same in every round."""
    tree, tables = drafted.tree, drafted.tables
    return [
        tree.tokens,
        tree.parents,
        tree.depths,
        tree.node_logws,
        tree.sizes,
        tables.next_token,
        tables.next_sibling,
        drafted.visible,
    ]
