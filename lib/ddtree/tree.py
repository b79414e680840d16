"""Build draft trees: the most probable prefixes under the drafter's per-position distributions.

A node always comes after its parent, rows are padded to one width, and an invalid tree raises ValueError."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from ddtree import kernels
from ddtree.topk import likeliest_tokens


@dataclass(frozen=True, slots=True)
class DraftTree:
    """A batch of draft trees, padded to one width q = budget + 1.

    Node 0 is the root: the last committed token, whose KV is not yet in the cache. Slots from
    `sizes[b]` on are padding: token 0, parent -1, depth 0, log-weight -inf; nothing links to them.
    """

    tokens: Tensor  # int64 [bs, q]
    parents: Tensor  # int64 [bs, q], local; -1 at the root and at padding
    depths: Tensor  # int64 [bs, q], 0 at the root
    node_logws: Tensor  # float32 [bs, q], cumulative draft log-probability in nats, 0 at the root
    sizes: Tensor  # int64 [bs], nodes of each tree, root included
    max_depth: int  # no node lies deeper; a walk accepts at most this many drafts

    def __post_init__(self) -> None:
        """Raises ValueError for a tensor of another dtype or shape; a kernel would read it as something else."""
        if self.tokens.ndim != 2:
            raise ValueError(f"DraftTree.tokens has shape {list(self.tokens.shape)}; it must be [bs, q].")
        long, (bs, q) = torch.int64, self.tokens.shape
        for name, tensor, dtype, shape in (
            ("tokens", self.tokens, long, (bs, q)),
            ("parents", self.parents, long, (bs, q)),
            ("depths", self.depths, long, (bs, q)),
            ("node_logws", self.node_logws, torch.float32, (bs, q)),
            ("sizes", self.sizes, long, (bs,)),
        ):
            if tensor.dtype != dtype or tensor.shape != shape:
                raise ValueError(
                    f"DraftTree.{name} is {tensor.dtype} {list(tensor.shape)}; it must be {dtype} {list(shape)}."
                )

    @property
    def batch_size(self) -> int:
        return self.tokens.shape[0]

    @property
    def width(self) -> int:
        return self.tokens.shape[1]

    @classmethod
    def from_parents(
        cls,
        tokens: Sequence[Sequence[int]],
        parents: Sequence[Sequence[int]],
        node_logws: Sequence[Sequence[float]],
        width: int | None = None,
    ) -> DraftTree:
        """A tree written by hand: one list per row, ragged rows padded to `width` (default: the widest row).

        Raises ValueError, naming row and node, for rows of different length, a parent that does not stand
        before its child (which also rules out cycles), two siblings with one token, or a width too small.
        """
        if not len(tokens) == len(parents) == len(node_logws):
            raise ValueError(
                f"from_parents needs as many rows of tokens, parents and node_logws; found {len(tokens)}, "
                f"{len(parents)} and {len(node_logws)}."
            )
        depths = [
            _checked_depths(row, *lists) for row, lists in enumerate(zip(tokens, parents, node_logws, strict=True))
        ]
        widest = max((len(row) for row in tokens), default=1)
        width = widest if width is None else width
        if width < widest:
            raise ValueError(f"width is {width}, but the largest tree has {widest} nodes; give at least that.")

        def padded(rows: Sequence[Sequence[float]], fill: float, dtype: torch.dtype) -> Tensor:
            full = [[*row, *[fill] * (width - len(row))] for row in rows]
            return torch.tensor(full, dtype=dtype).reshape(len(rows), width)

        return cls(
            tokens=padded(tokens, 0, torch.int64),
            parents=padded(parents, -1, torch.int64),
            depths=padded(depths, 0, torch.int64),
            node_logws=padded(node_logws, -torch.inf, torch.float32),
            sizes=torch.tensor([len(row) for row in tokens], dtype=torch.int64),
            max_depth=max((max(row) for row in depths), default=0),
        )

    def cut(self, sizes: Tensor) -> DraftTree:
        """The first `sizes[b]` nodes (int64 [bs], root included) of each tree, padded to the largest of them.

        A parent stands before its children, so what is left is a tree: the one that a smaller budget would have built.
        """
        sizes = torch.minimum(sizes.clamp(min=1), self.sizes)
        width = int(sizes.max())
        gone = torch.arange(width, device=sizes.device) >= sizes[:, None]
        return DraftTree(
            tokens=self.tokens[:, :width].masked_fill(gone, 0),
            parents=self.parents[:, :width].masked_fill(gone, -1),
            depths=self.depths[:, :width].masked_fill(gone, 0),
            node_logws=self.node_logws[:, :width].masked_fill(gone, -torch.inf),
            sizes=sizes,
            max_depth=min(self.max_depth, width - 1),
        )

    def to(self, device: torch.device | str) -> DraftTree:
        """The same trees on another device."""
        return DraftTree(
            tokens=self.tokens.to(device),
            parents=self.parents.to(device),
            depths=self.depths.to(device),
            node_logws=self.node_logws.to(device),
            sizes=self.sizes.to(device),
            max_depth=self.max_depth,
        )


def _checked_depths(row: int, tokens: Sequence[int], parents: Sequence[int], node_logws: Sequence[float]) -> list[int]:
    if not len(tokens) == len(parents) == len(node_logws) or not tokens:
        raise ValueError(
            f"row {row} needs the same number of tokens, parents and node_logws, and at least a root; found "
            f"{len(tokens)}, {len(parents)} and {len(node_logws)}."
        )
    if parents[0] != -1:
        raise ValueError(f"row {row}: node 0 is the root, so its parent must be -1; found {parents[0]}.")
    depths = [0]
    seen: set[tuple[int, int]] = set()
    for node, (token, parent) in enumerate(zip(tokens[1:], parents[1:], strict=True), start=1):
        if not 0 <= parent < node:
            raise ValueError(
                f"row {row}: node {node} has parent {parent}, but a parent stands before its child, so it must "
                f"be in 0..{node - 1}."
            )
        if token < 0:
            raise ValueError(f"row {row}: node {node} has token {token}; a token id is at least 0.")
        if (parent, token) in seen:
            raise ValueError(
                f"row {row}: node {node} repeats token {token} among the children of node {parent}; siblings "
                "must differ, or that token's probability would count twice."
            )
        seen.add((parent, token))
        depths.append(depths[parent] + 1)
    return depths


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


__all__ = ["DraftTree", "build_tree"]


def build_tree(
    draft_logits: Tensor,
    root_tokens: Tensor,
    *,
    budget: int,
    topk_cap: int | None = None,
    draft_temperature: float | Tensor = 1.0,
) -> DraftTree:
    """The `budget` most probable prefixes of each row, best first (DDTree, arXiv 2604.12989).

    The drafter's positions are independent, so a prefix weighs the sum of its tokens' log-probabilities and
    never more than its own prefix: the best nodes overall are among the best `budget` of each depth, and every
    parent of a chosen node is chosen. Shapes depend on the arguments alone and nothing waits for the device.
    Equal weights go to the smaller depth, then to the earlier parent and the better rank, so smaller budgets
    give prefixes of larger trees.

    Args:
        draft_logits: float [bs, depth, V], any float type; computed in float32. -inf is never drafted.
        root_tokens: int64 [bs]; narrower integers are widened.
        budget: nodes beside the root; 0 gives the root alone.
        topk_cap: largest number of children of one node; None for no cap.
        draft_temperature: divides the logits; a number, or a tensor [bs] with one for each row.

    Raises:
        ValueError: a shape, the budget, the cap or a temperature out of range.
    """
    if draft_logits.ndim != 3 or root_tokens.shape != draft_logits.shape[:1]:
        raise ValueError(
            f"build_tree needs draft_logits [bs, depth, V] and root_tokens [bs]; found "
            f"{list(draft_logits.shape)} and {list(root_tokens.shape)}."
        )
    if root_tokens.is_floating_point() or root_tokens.dtype in (torch.bool, torch.complex64):
        raise ValueError(f"root_tokens are {root_tokens.dtype}; token ids must be integers.")
    if budget < 0:
        raise ValueError(f"budget is {budget}; it counts nodes beside the root, so it must be 0 or more.")
    if topk_cap is not None and topk_cap < 1:
        raise ValueError(f"topk_cap is {topk_cap}; a node needs room for at least 1 child.")
    branch = min(draft_logits.shape[2], budget, topk_cap or budget)
    tokens, logps = likeliest_tokens(draft_logits, branch, draft_temperature)
    return best_prefixes(tokens, logps, root_tokens, budget)
