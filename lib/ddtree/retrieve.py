"""Compile a draft tree for the verify: first-child and next-sibling links, attention mask and positions.

The links reach every node exactly once and never padding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ddtree import kernels
from ddtree.tree import DraftTree


@dataclass(frozen=True, slots=True)
class RetrieveTables:
    """EAGLE's first-child / next-sibling form of a tree, as the sampling kernels read it."""

    index: Tensor  # int64 [bs, q], flat: b * q + i
    next_token: Tensor  # int64 [bs, q], local first child, -1 none
    next_sibling: Tensor  # int64 [bs, q], local next sibling, -1 none

    def __post_init__(self) -> None:
        """Raises ValueError for a table of another dtype, or of another shape than `index`."""
        for name, table in (
            ("index", self.index),
            ("next_token", self.next_token),
            ("next_sibling", self.next_sibling),
        ):
            if table.dtype != torch.int64 or table.shape != self.index.shape:
                raise ValueError(
                    f"RetrieveTables.{name} is {table.dtype} {list(table.shape)}; it must be torch.int64 "
                    f"{list(self.index.shape)}."
                )


def compile_retrieve(tree: DraftTree) -> RetrieveTables:
    """First-child and next-sibling links; siblings by descending `node_logws`, whatever their order in the arrays.

    Sibling order does not change the distribution of the accepted text, only how many siblings a walk visits, so the
    most probable child comes first. Equal weights keep array order. Fixed shapes, no synchronisation.
    """
    fits = tree.width <= kernels.MAX_NODES
    link = kernels.choose(tree.parents, gpu=kernels.link_nodes, torch=_link_nodes, fits=fits)
    return RetrieveTables(*link(tree.parents, tree.node_logws, tree.sizes))


def _link_nodes(parents: Tensor, node_logws: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """index, next_token and next_sibling, in torch."""
    bs, q = parents.shape
    device = parents.device
    local = torch.arange(q, device=device).expand(bs, q)
    drafted = (local > 0) & (local < sizes[:, None])
    nowhere = q  # links of the root and of padding go to a spare column

    by_weight = node_logws.argsort(dim=1, descending=True, stable=True)
    parent = torch.where(drafted, parents, nowhere).gather(1, by_weight)
    by_parent = parent.argsort(dim=1, stable=True)
    node = by_weight.gather(1, by_parent)  # siblings are adjacent, the most probable first
    parent = parent.gather(1, by_parent)

    is_next = (parent[:, 1:] == parent[:, :-1]) & (parent[:, 1:] < nowhere)
    is_first = torch.ones_like(parent, dtype=torch.bool)
    is_first[:, 1:] = ~is_next
    spare = torch.full((bs, q + 1), -1, dtype=torch.int64, device=device)
    next_token = spare.scatter(1, torch.where(is_first, parent, nowhere), node)[:, :q]
    next_sibling = spare.scatter(1, torch.where(is_next, node[:, :-1], nowhere), node[:, 1:])[:, :q]
    index = torch.arange(bs * q, device=device).reshape(bs, q)
    return index, next_token.contiguous(), next_sibling.contiguous()


def tree_positions(tree: DraftTree, prefix_len: Tensor) -> Tensor:
    """int64 [bs, q]: prefix length plus depth, never plus index (siblings share a position)."""
    return prefix_len[:, None] + tree.depths


def tree_visibility(tree: DraftTree) -> Tensor:
    """bool [bs, q, q]: node i sees node j iff j is i or one of its ancestors; padding sees only itself."""
    q = tree.width
    nodes = torch.arange(q, device=tree.tokens.device)
    itself = torch.eye(q, dtype=torch.bool, device=nodes.device)
    sees = (tree.parents[:, :, None] == nodes) | itself
    reach = 1
    while reach < min(tree.max_depth, q - 1):  # each squaring doubles how far up a node sees
        sees = (sees.float() @ sees.float()) > 0
        reach *= 2
    return sees


def tree_attention_mask(tree: DraftTree, prefix_len: Tensor, *, key_len: int, dtype: torch.dtype) -> Tensor:
    """Additive float mask [bs, 1, q, key_len]: 0 where node i may attend, the dtype's minimum elsewhere.

    Keys of row b are its `prefix_len[b]` committed tokens, then its q nodes. The mask is added to the scores:
    a Boolean or 1/0 mask masks nothing under eager attention, and no error says so.
    """
    fits = dtype in kernels.MASK_DTYPES
    mask = kernels.choose(tree.parents, gpu=_tree_mask_on_gpu, torch=_tree_mask, fits=fits)
    return mask(tree, prefix_len, key_len, dtype)


def _tree_mask_on_gpu(tree: DraftTree, prefix_len: Tensor, key_len: int, dtype: torch.dtype) -> Tensor:
    return kernels.tree_mask(tree.parents, prefix_len, key_len, dtype)


def _tree_mask(tree: DraftTree, prefix_len: Tensor, key_len: int, dtype: torch.dtype) -> Tensor:
    bs, q = tree.tokens.shape
    device = tree.tokens.device
    keys = torch.arange(key_len, device=device)
    node = keys[None, :] - prefix_len[:, None]  # [bs, key_len], local node of each key, negative in the prefix
    in_tree = (node >= 0) & (node < q)
    visible = tree_visibility(tree).gather(2, node.clamp(0, q - 1)[:, None, :].expand(bs, q, key_len))
    allowed = (node < 0)[:, None, :] | (in_tree[:, None, :] & visible)
    mask = torch.zeros(allowed.shape, dtype=dtype, device=device)
    return mask.masked_fill_(~allowed, torch.finfo(dtype).min)[:, None]
