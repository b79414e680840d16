"""Build draft trees: the most probable prefixes under the drafter's per-position distributions.

A node always comes after its parent, rows are padded to one width, and an invalid tree raises ValueError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from ddtree import kernels
from ddtree.topk import topk_tokens


@dataclass(frozen=True, slots=True)
class DraftTree:
    """A batch of draft trees, padded to one width q = budget + 1.

    Node 0 is the root: the last committed token, whose KV is not yet in the cache. Slots from
    `sizes[b]` on are padding: token 0, parent -1, depth 0, log-probability -inf; nothing links to them.
    """

    tokens: Tensor  # int64 [bs, q]
    parents: Tensor  # int64 [bs, q], local; -1 at the root and at padding
    depths: Tensor  # int64 [bs, q], 0 at the root
    node_logws: Tensor  # float32 [bs, q], cumulative draft log-probability in nats, 0 at the root
    sizes: Tensor  # int64 [bs], nodes of each tree, root included
    max_depth: int  # no node lies deeper; a walk accepts at most this many drafts

    def __post_init__(self) -> None:
        """Raises ValueError for a tensor of another dtype or shape; a kernel would misread its memory."""
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

        Raises ValueError, naming row and node, for rows of different length, a parent that does not come before
        its child (which also rules out cycles), two siblings with the same token, or a width too small.
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

        A parent comes before its children, so the result is a tree: the one that a smaller budget would have built.
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


def build_tree(
    draft_logits: Tensor,
    root_tokens: Tensor,
    *,
    budget: int,
    topk_cap: int | None = None,
    draft_temperature: float | Tensor = 1.0,
) -> DraftTree:
    """The `budget` most probable prefixes of each row, best first (DDTree, arXiv 2604.12989).

    The drafter's positions are independent, so the log-probability of a prefix is the sum over its tokens and never
    exceeds that of a shorter prefix of it: the best nodes overall are among the best `budget` of each depth, and the
    parent of a selected node is always selected. Ties go to the smaller depth, then to the earlier parent and the
    better rank, so smaller budgets give prefixes of larger trees.

    Shapes depend only on the arguments, and nothing waits for the device. The result is not differentiable.

    Args:
        draft_logits: float [bs, depth, V], any float type; computed in float32. -inf is never drafted.
        root_tokens: int64 [bs]; narrower integers are widened.
        budget: nodes without the root; 0 gives only the root.
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
        raise ValueError(f"budget is {budget}; it counts nodes without the root, so it must be 0 or more.")
    if topk_cap is not None and topk_cap < 1:
        raise ValueError(f"topk_cap is {topk_cap}; it bounds the children of a node, so it must be at least 1.")
    branch = min(draft_logits.shape[2], budget, topk_cap or budget)
    tokens, logprobs = topk_tokens(draft_logits, branch, draft_temperature)
    return select_nodes(tokens, logprobs, root_tokens, budget)


def select_nodes(tokens: Tensor, logprobs: Tensor, root_tokens: Tensor, budget: int) -> DraftTree:
    """The `budget` best prefixes of `topk_tokens`' answer: int64 and float32 [bs, depth, branch], best first.

    Depth by depth, the prefixes kept at the depth above are extended by the tokens of this depth. The p-th best prefix
    extended by the r-th best token has p * r - 1 candidates at least as good, so only pairs with p * r <= budget are
    candidates. With budget 4 and branch 3 these are (1,1) (1,2) (1,3) (2,1) (2,2) (3,1) (4,1): 7 of 12 pairs.
    """
    depth, branch = tokens.shape[1:]
    candidates = candidate_pairs(depth if branch else 0, branch, budget, logprobs.device)
    fits = candidates.widest > 0 and kernels.fits_selection(candidates.widest, len(candidates.depth), budget + 1)
    select = kernels.choose(logprobs, gpu=_select_nodes_on_gpu, torch=_select_nodes, fits=fits)
    return DraftTree(*select(tokens, logprobs, root_tokens, candidates, budget), max_depth=depth)


@dataclass(frozen=True, slots=True)
class CandidatePairs:
    """The pairs (prefix, next token) that can be among the best, known before any probability is.

    An entry is a prefix kept at some depth; entries of all depths follow one another, the root being entry 0.
    """

    by_depth: tuple[tuple[Tensor, Tensor], ...]  # rank of the parent and of the token, int64 [pairs of the depth] each
    widest: int  # pairs of the depth that has most
    parent: Tensor  # int64 [all pairs], entry of the parent
    token: Tensor  # int64 [all pairs], index into the top-k tokens [depth * branch]
    depth: Tensor  # int64 [entries]
    first_pair: Tensor  # int64 [entries], first pair of the entry's depth
    pair_starts: Tensor  # int64 [depth + 1], first pair of each depth, then the number of pairs
    entry_starts: Tensor  # int64 [depth + 2], first entry of each depth, the root's included


@cache  # never evicted: a CUDA graph goes on reading the tensors it was captured with; a few KB for each shape
def candidate_pairs(depth: int, branch: int, budget: int, device: torch.device) -> CandidatePairs:
    by_depth: list[tuple[Tensor, Tensor]] = []
    parents: list[int] = []
    tokens: list[int] = []
    depths, first_pairs = [0], [0]
    pair_starts, entry_starts = [0], [0, 1]
    size = 1  # entries of the depth above
    for d in range(depth):
        pairs = [(p, r) for p in range(size) for r in range(min(branch, budget // (p + 1)))]
        parent, rank = torch.tensor(pairs, device=device).T.contiguous()
        by_depth.append((parent, rank))
        first_entry_above, size = len(depths) - size, min(budget, len(pairs))
        depths += [d + 1] * size
        first_pairs += [len(parents)] * size
        parents += [first_entry_above + p for p, _ in pairs]
        tokens += [d * branch + r for _, r in pairs]
        pair_starts.append(len(parents))
        entry_starts.append(len(depths))
    lists = (parents, tokens, depths, first_pairs, pair_starts, entry_starts)
    tensors = [torch.tensor(values, dtype=torch.int64, device=device) for values in lists]
    widest = max((len(parent) for parent, _ in by_depth), default=0)
    return CandidatePairs(tuple(by_depth), widest, *tensors)


def _select_nodes(
    tokens: Tensor, logprobs: Tensor, root_tokens: Tensor, candidates: CandidatePairs, budget: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Tokens, parents, depths, node_logws and sizes, in torch."""
    logws, pairs = _best_of_each_depth(logprobs, candidates, budget)
    entries, width = len(candidates.depth), budget + 1
    logws = torch.nn.functional.pad(logws, (0, max(0, width - entries)), value=-torch.inf)
    # Entries are sorted by depth, so a stable sort leaves a parent before a child of equal weight, and the root first.
    logws, order = logws.sort(dim=1, descending=True, stable=True)
    ranks = torch.arange(order.shape[1], device=order.device).expand_as(order)
    node_of_entry = torch.empty_like(order).scatter_(1, order, ranks)
    order, node_logws = order[:, :width], logws[:, :width].contiguous()
    padding = node_logws == -torch.inf
    if candidates.by_depth:
        entry = order.clamp(max=entries - 1)
        pair = pairs.gather(1, entry) + candidates.first_pair[entry]
        node_tokens = tokens.flatten(1).gather(1, candidates.token[pair]).masked_fill(padding, 0)
        parents = node_of_entry.gather(1, candidates.parent[pair]).masked_fill(padding, -1)
        depths = candidates.depth[entry].masked_fill(padding, 0)
    else:
        node_tokens, depths = torch.zeros_like(order), torch.zeros_like(order)
        parents = torch.full_like(order, -1)
    node_tokens[:, 0], parents[:, 0] = root_tokens, -1
    return node_tokens, parents, depths, node_logws, width - padding.sum(dim=1)


def _select_nodes_on_gpu(
    tokens: Tensor, logprobs: Tensor, root_tokens: Tensor, candidates: CandidatePairs, budget: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    tables = (
        candidates.parent,
        candidates.token,
        candidates.pair_starts,
        candidates.entry_starts,
        candidates.depth,
    )
    return kernels.select_nodes(tokens, logprobs, root_tokens, tables, candidates.widest, budget, budget + 1)


def _best_of_each_depth(logprobs: Tensor, candidates: CandidatePairs, budget: int) -> tuple[Tensor, Tensor]:
    """float32 and int64 [bs, entries]: log-probability of each entry, and its pair, counted from its depth's first."""
    root = torch.zeros(len(logprobs), 1, device=logprobs.device)
    logws, pairs = [root], [root.long()]
    for d, (parent, rank) in enumerate(candidates.by_depth):
        children = logws[-1].index_select(1, parent) + logprobs[:, d].index_select(1, rank)
        best, pair = children.sort(dim=1, descending=True, stable=True)
        logws.append(best[:, :budget])
        pairs.append(pair[:, :budget])
    return torch.cat(logws, dim=1), torch.cat(pairs, dim=1)


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
                f"row {row}: node {node} has parent {parent}, but a parent comes before its child, so it must "
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
