"""The draft tree: the best prefixes under the drafter's per-position distributions, a parent before its children."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import torch
from torch import Tensor

CHUNK = 256  # of the vocabulary; see _top_k_by_id


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
    tokens, logps = _best_tokens(draft_logits, branch, draft_temperature)  # each [bs, depth, branch]
    return _best_prefixes(tokens, logps, root_tokens, budget)


def _best_tokens(logits: Tensor, branch: int, temperature: float | Tensor) -> tuple[Tensor, Tensor]:
    """The likeliest `branch` tokens of each position with their log-probabilities, best first, ties to the lower id."""
    scale = torch.as_tensor(temperature, dtype=torch.float32)  # a tensor on a GPU is not looked at: that would wait
    if scale.device.type == "cpu" and not bool(((scale > 0) & scale.isfinite()).all()):
        raise ValueError(f"draft_temperature is {temperature}; it divides logits, so it must be above 0.")
    if branch == 0 or logits.shape[1] == 0:
        none = torch.zeros(*logits.shape[:2], branch, device=logits.device)
        return none.long(), none
    scaled = logits.float()
    if isinstance(temperature, Tensor):
        scaled = scaled / scale.to(logits.device).reshape(-1, 1, 1)
    elif temperature != 1.0:
        scaled = scaled / temperature
    logps, tokens = _top_k_by_id(scaled.log_softmax(dim=-1), branch)
    return tokens, torch.where(logps.isnan(), -torch.inf, logps)  # a position without a distribution drafts nothing


def _top_k_by_id(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest along the last axis, equal values by ascending id, so that a smaller k gives a prefix.

    `torch.topk` leaves open which of several equal values make the cut. Cut the axis into chunks: the k best
    elements lie in the k chunks of largest maximum (ties to the earlier chunk), and those are few enough to sort.
    """
    n = values.shape[-1]
    if n <= k * CHUNK:
        ordered, ids = values.sort(dim=-1, descending=True, stable=True)
        return ordered[..., :k], ids[..., :k]
    if n % CHUNK:
        values = torch.nn.functional.pad(values, (0, CHUNK - n % CHUNK), value=-torch.inf)
    chunks = values.unflatten(-1, (-1, CHUNK))
    best = chunks.amax(dim=-1).argsort(dim=-1, descending=True, stable=True)[..., :k].sort(dim=-1).values
    kept = chunks.gather(-2, best[..., None].expand(*best.shape, CHUNK)).flatten(-2)  # in order of id
    ordered, place = kept.sort(dim=-1, descending=True, stable=True)
    ordered, place = ordered[..., :k], place[..., :k]
    return ordered, best.gather(-1, place // CHUNK) * CHUNK + place % CHUNK


def _best_prefixes(tokens: Tensor, logps: Tensor, root_tokens: Tensor, budget: int) -> DraftTree:
    """The tree, given each position's favourites [bs, depth, branch], best first."""
    bs, depth, branch = tokens.shape
    weights = [torch.zeros(bs, 1, device=logps.device)]  # by depth, the root first
    choices = []  # by depth: parent * branch + rank, numbering the parents within their depth
    for d in range(depth if branch else 0):
        children = (weights[-1][:, :, None] + logps[:, d, None, :]).flatten(1)
        best, choice = children.sort(dim=1, descending=True, stable=True)
        weights.append(best[:, :budget])
        choices.append(choice[:, :budget])
    sizes = tuple(level.shape[1] for level in weights)
    entry = _entries(sizes, branch, logps.device)
    width = budget + 1
    weight = torch.nn.functional.pad(torch.cat(weights, dim=1), (0, max(0, width - sum(sizes))), value=-torch.inf)
    choice = torch.nn.functional.pad(torch.cat(choices, dim=1), (1, 0)) if choices else torch.zeros_like(weight).long()
    # Depths follow one another, so a stable sort leaves a parent before a child of equal weight, and the root first.
    order = weight.argsort(dim=1, descending=True, stable=True)
    rank = torch.empty_like(order).scatter_(
        1, order, torch.arange(order.shape[1], device=order.device).expand_as(order)
    )
    order = order[:, :width]
    node_logws = weight.gather(1, order)
    padding = node_logws == -torch.inf
    if not choices:
        none = torch.zeros_like(order)
        node_tokens, parents, depths = none, none, none
    else:
        chosen = order.clamp(max=sum(sizes) - 1)
        choice = choice.gather(1, chosen)
        node_tokens = tokens.flatten(1).gather(1, entry.first_token[chosen] + choice % branch)
        parents = rank.gather(1, entry.first_parent[chosen] + choice // branch)
        depths = entry.depth[chosen]
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
class _Entries:
    """What is known of the candidate prefixes, depth after depth, before any weight is: int64 [entries] each."""

    depth: Tensor
    first_parent: Tensor  # entry of the first candidate one depth up
    first_token: Tensor  # place of the depth's favourites among all, [depth * branch]


@lru_cache(maxsize=64)
def _entries(sizes: tuple[int, ...], branch: int, device: torch.device) -> _Entries:
    depth = torch.tensor([d for d, size in enumerate(sizes) for _ in range(size)], device=device)
    starts = torch.tensor([0, *accumulate(sizes)], device=device)
    return _Entries(depth, starts[(depth - 1).clamp(min=0)], (depth - 1).clamp(min=0) * branch)
