"""Build a batch's draft trees, their tables and visibility from the drafter's hidden rows.

Nothing here waits for the device or depends on a value on it. So a CUDA graph captures all of it behind the drafter's
forward and fills buffers, and a batch without a graph runs the same lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ddtree.retrieve import RetrieveTables, compile_retrieve, tree_visibility
from ddtree.tree import DraftTree, build_tree


@dataclass(frozen=True, slots=True)
class DraftedBatch:
    """A batch's trees and what the verify needs of them."""

    tree: DraftTree
    tables: RetrieveTables
    visible: Tensor  # bool [bs, q, q]

    @classmethod
    def of(cls, tree: DraftTree) -> DraftedBatch:
        return cls(tree, compile_retrieve(tree), tree_visibility(tree))

    def map(self, change: Callable[[Tensor], Tensor]) -> DraftedBatch:
        """The batch with `change` applied to each of its tensors, whose first dimension is the batch."""
        tree, tables = self.tree, self.tables
        return DraftedBatch(
            DraftTree(
                tokens=change(tree.tokens),
                parents=change(tree.parents),
                depths=change(tree.depths),
                node_logws=change(tree.node_logws),
                sizes=change(tree.sizes),
                max_depth=tree.max_depth,
            ),
            RetrieveTables(
                index=change(tables.index),
                next_token=change(tables.next_token),
                next_sibling=change(tables.next_sibling),
            ),
            change(self.visible),
        )


class TreeDrafter:
    """Row 0 of a block is the root, the next rows are the drafted positions; the target's head gives their logits.

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
        self._buffers: DraftedBatch | None = None

    def reserve(self, max_batch_size: int) -> None:
        """Allocate the buffers, for batches of up to `max_batch_size` requests, that graphs captured later fill."""
        block = torch.zeros(self.block, self.head.shape[1], dtype=self.head.dtype, device=self.head.device)
        root = torch.zeros(1, dtype=torch.int64, device=self.head.device)
        self._buffers = _enlarged(self.draft(block, root), max_batch_size)

    @torch.no_grad()
    def draft(self, hidden: Tensor, roots: Tensor) -> DraftedBatch:
        """`hidden` [bs * block, hidden], `roots` int64 [bs]."""
        rows = hidden.view(-1, self.block, hidden.shape[-1])[:, 1:].to(self.head.dtype)
        return DraftedBatch.of(
            build_tree(
                rows @ self.head.T,
                roots.contiguous(),  # a view of the first column has the block's stride; kernels read stride 1
                budget=self.budget,
                topk_cap=self.topk_cap,
                draft_temperature=self.temperature,
            )
        )

    def __call__(self, hidden: Tensor, input_ids: Tensor) -> None:
        """What a graph runs behind the drafter's forward: fill the buffers' first rows."""
        if self._buffers is None:
            raise RuntimeError("TreeDrafter.reserve must be called before a graph is captured.")
        roots = input_ids.view(-1, self.block)[:, 0]
        drafted = self.draft(hidden, roots)
        for buffer, new in zip(_varying_tensors(self._buffers), _varying_tensors(drafted), strict=True):
            buffer[: len(roots)].copy_(new)

    def read(self, batch_size: int) -> DraftedBatch:
        """The first `batch_size` trees of the last replay, as views: use them before the next one."""
        if self._buffers is None:
            raise RuntimeError("TreeDrafter.reserve must be called before its buffers are read.")
        return self._buffers.map(lambda tensor: tensor[:batch_size])


def _enlarged(drafted: DraftedBatch, batch_size: int) -> DraftedBatch:
    """Zeros in the shapes of `drafted` for `batch_size` requests, and the index of such a batch."""
    empty = drafted.map(lambda tensor: tensor.new_zeros(batch_size, *tensor.shape[1:]))
    width = drafted.tree.width
    index = torch.arange(batch_size * width, device=empty.tables.index.device).view(batch_size, width)
    return replace(empty, tables=replace(empty.tables, index=index))


def _varying_tensors(drafted: DraftedBatch) -> list[Tensor]:
    """All tensors of a batch except `tables.index`, which is the same in every round."""
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
