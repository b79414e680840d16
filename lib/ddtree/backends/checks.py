"""Check the inputs of a verify before any backend runs; errors name the request, the node and the value found."""

from __future__ import annotations

import torch
from torch import Tensor

from ddtree.retrieve import RetrieveTables
from ddtree.tree import DraftTree

SUM_TOLERANCE = 1e-3  # how far a row of probabilities may sum from 1


def check_shapes(tree: DraftTree, tables: RetrieveTables, rows: Tensor, coins: Tensor, final_coins: Tensor) -> None:
    bs, q = tree.tokens.shape
    if rows.ndim != 3 or rows.shape[:2] != (bs, q):
        raise ValueError(f"rows have shape {list(rows.shape)}; a tree of [{bs}, {q}] nodes needs [{bs}, {q}, V].")
    if coins.shape != (bs, q) or final_coins.shape != (bs,):
        raise ValueError(
            f"coins have shape {list(coins.shape)} and final_coins {list(final_coins.shape)}; they must be "
            f"[{bs}, {q}] and [{bs}]."
        )
    if tables.index.shape != (bs, q):
        raise ValueError(f"tables are for {list(tables.index.shape)} nodes, the tree has [{bs}, {q}].")
    for name, values in (("coins", coins), ("final_coins", final_coins)):
        if values.dtype != torch.float32:
            raise ValueError(f"{name} are {values.dtype}; they must be float32 in [0, 1).")


def check_values(tree: DraftTree, vocab: int, coins: Tensor, final_coins: Tensor) -> None:
    """On a GPU this waits for the device."""
    if tree.batch_size == 0:
        return
    for name, values in (("coins", coins), ("final_coins", final_coins)):
        low, high = values.aminmax()  # NaN fails both comparisons
        if not (low >= 0 and high < 1):
            raise ValueError(
                f"{name} are {values.dtype} from {low.item()} to {high.item()}; they must be float32 in [0, 1)."
            )
    low, high = tree.tokens.aminmax()
    if not (low >= 0 and high < vocab):
        b, node = ((tree.tokens < 0) | (tree.tokens >= vocab)).nonzero()[0].tolist()
        raise ValueError(
            f"request {b}, node {node} has token {tree.tokens[b, node].item()}, outside the target's vocabulary "
            f"of {vocab}."
        )


def check_probs(tree: DraftTree, probs: Tensor) -> None:
    if not probs.numel():
        return
    sums, smallest = probs.sum(dim=-1), probs.amin(dim=-1)
    padding = torch.arange(tree.width, device=probs.device) >= tree.sizes[:, None]  # no walk reads its rows
    valid = padding | (((sums - 1).abs() <= SUM_TOLERANCE) & (smallest >= 0))  # NaN fails both
    if not bool(valid.all()):
        b, node = (~valid).nonzero()[0].tolist()
        raise ValueError(
            f"probs of request {b}, node {node} sum to {sums[b, node].item():g}, the smallest is "
            f"{smallest[b, node].item():g}; a row must sum to 1 and have no negative entry."
        )


def check_tree(tree: DraftTree, tables: RetrieveTables, vocab: int) -> None:
    """ValueError for siblings with the same token, whose probability would count twice, and for invalid links.

    A node that is linked to twice has an invalid link; without one, no walk from the root can reach a cycle.
    """
    bs, q = tree.tokens.shape
    nodes = torch.arange(q, device=tree.tokens.device).expand(bs, q)
    drafted = (nodes > 0) & (nodes < tree.sizes[:, None])
    sibling_key = torch.where(drafted, tree.parents * vocab + tree.tokens, -1 - nodes)
    sibling_key, order = sibling_key.sort(dim=1)
    duplicates = sibling_key[:, 1:] == sibling_key[:, :-1]
    if bool(duplicates.any()):
        b, place = duplicates.nonzero()[0].tolist()
        one, other = sorted(order[b, place : place + 2].tolist())
        raise ValueError(
            f"request {b}: nodes {one} and {other} are siblings with token {tree.tokens[b, one].item()}; siblings "
            "must differ, or that token's probability would count twice."
        )
    links = torch.cat([tables.next_token, tables.next_sibling], dim=1)
    owner = torch.cat([nodes, tree.parents], dim=1)  # the parent of the node that a link must lead to
    linked = links != -1
    inside = (links > 0) & (links < tree.sizes[:, None])
    here = torch.where(inside, links, q)
    of_owner = torch.nn.functional.pad(tree.parents, (0, 1), value=-2).gather(1, here) == owner
    times = torch.zeros(bs, q + 1, dtype=torch.int64, device=links.device).scatter_add_(1, here, linked.long())
    wrong = linked & ~(inside & of_owner & (times.gather(1, here) == 1))
    if bool(wrong.any()):
        b, place = wrong.nonzero()[0].tolist()
        name = "next_token" if place < q else "next_sibling"
        raise ValueError(
            f"request {b}: tables.{name} of node {place % q} is {links[b, place].item()}, which is not a link of this "
            "tree (each drafted node is linked to once, by its parent or a sibling); use compile_retrieve(tree)."
        )
    if not torch.equal(tables.index, torch.arange(bs * q, device=links.device).reshape(bs, q)):
        raise ValueError("tables.index is not b * q + i; use compile_retrieve(tree).")
