"""From each position's likeliest tokens to the best prefixes of all, depth by depth, in fixed shapes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from ddtree import kernels
from ddtree.draft_tree import DraftTree


def best_prefixes(tokens: Tensor, logps: Tensor, root_tokens: Tensor, budget: int) -> DraftTree:
    """The tree of `likeliest_tokens`' answer: int64 and float32 [bs, depth, branch], best first.

    The p-th best prefix of one depth, prolonged by the r-th best token of the next, has p * r - 1 others before it, so
    it is worth a look only while p * r is at most the budget.
    """
    bs, depth, branch = tokens.shape
    plan = _plan(depth if branch else 0, branch, budget, logps.device)
    if plan.pairs and kernels.run_on(logps) and kernels.holds(plan.widest, len(plan.depth), budget + 1):
        tables = (plan.parent, plan.token, plan.pair_starts, plan.entry_starts, plan.depth)
        grown = kernels.prefixes(tokens, logps, root_tokens, tables, plan.widest, budget, budget + 1)
        return DraftTree(*grown, max_depth=depth)
    weights = [torch.zeros(bs, 1, device=logps.device)]  # by depth, the root first
    places = []  # by depth: which of the depth's candidate pairs
    for d, (parent, rank) in enumerate(plan.pairs):
        children = weights[-1].index_select(1, parent) + logps[:, d].index_select(1, rank)
        best, place = children.sort(dim=1, descending=True, stable=True)
        weights.append(best[:, :budget])
        places.append(place[:, :budget])
    entries, width = plan.depth.shape[0], budget + 1
    weight = torch.nn.functional.pad(torch.cat(weights, dim=1), (0, max(0, width - entries)), value=-torch.inf)
    # Depths follow one another, so a stable sort leaves a parent before a child of equal weight, and the root first.
    weight, order = weight.sort(dim=1, descending=True, stable=True)
    places_of = torch.arange(order.shape[1], device=order.device).expand_as(order)
    rank_of = torch.empty_like(order).scatter_(1, order, places_of)  # where an entry went
    order, node_logws = order[:, :width], weight[:, :width].contiguous()
    padding = node_logws == -torch.inf
    if not places:
        none = torch.zeros_like(order)
        node_tokens, parents, depths = none, none, none
    else:
        chosen = order.clamp(max=entries - 1)
        pair = torch.nn.functional.pad(torch.cat(places, dim=1), (1, 0)).gather(1, chosen) + plan.first_pair[chosen]
        node_tokens = tokens.flatten(1).gather(1, plan.token[pair])
        parents = rank_of.gather(1, plan.parent[pair])
        depths = plan.depth[chosen]
    node_tokens, parents = node_tokens.masked_fill(padding, 0), parents.masked_fill(padding, -1)
    node_tokens[:, 0], parents[:, 0] = root_tokens, -1
    return DraftTree(
        tokens=node_tokens,
        parents=parents,
        depths=depths.masked_fill(padding, 0),
        node_logws=node_logws,
        sizes=width - padding.sum(dim=1),
        max_depth=depth,
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is known of the candidates before any weight is: which pairs of a depth are looked at, and their places."""

    pairs: tuple[tuple[Tensor, Tensor], ...]  # by depth: parent and rank, int64 [pairs of the depth] each
    widest: int  # pairs of the depth that has most
    parent: Tensor  # int64 [all pairs], entry of the parent: its place among all depths' best, the root being 0
    token: Tensor  # int64 [all pairs], place of the token among the favourites, [depth * branch]
    depth: Tensor  # int64 [entries]
    first_pair: Tensor  # int64 [entries], of the entry's depth
    pair_starts: Tensor  # int64 [depth + 1], the first pair of each depth, and how many there are in all
    entry_starts: Tensor  # int64 [depth + 2], likewise; depth 0 is the root's


@cache  # never evicted: a CUDA graph goes on reading the tensors that it was captured with
def _plan(depth: int, branch: int, budget: int, device: torch.device) -> _Plan:
    pairs: list[tuple[Tensor, Tensor]] = []
    parents: list[int] = []
    tokens: list[int] = []
    depths, first_pairs = [0], [0]
    pair_starts, entry_starts = [0], [0, 1]
    size = 1  # of the depth above
    for d in range(depth):
        looked_at = [(p, r) for p in range(size) for r in range(min(branch, budget // (p + 1)))]
        parent, rank = torch.tensor(looked_at, device=device).T.contiguous()
        pairs.append((parent, rank))
        above, size = len(depths) - size, min(budget, len(looked_at))
        depths += [d + 1] * size
        first_pairs += [len(parents)] * size
        parents += [above + p for p, _ in looked_at]
        tokens += [d * branch + r for _, r in looked_at]
        pair_starts.append(len(parents))
        entry_starts.append(len(depths))
    lists = (parents, tokens, depths, first_pairs, pair_starts, entry_starts)
    tensors = [torch.tensor(values, dtype=torch.int64, device=device) for values in lists]
    widest = max((len(parent) for parent, _ in pairs), default=0)
    return _Plan(tuple(pairs), widest, *tensors)
