"""The draft tree: the best prefixes under the drafter's per-position distributions, a parent before its children."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


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
        root_tokens: int64 [bs].
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
    if budget < 0:
        raise ValueError(f"budget is {budget}; it counts nodes beside the root, so it must be 0 or more.")
    if topk_cap is not None and topk_cap < 1:
        raise ValueError(f"topk_cap is {topk_cap}; a node needs room for at least 1 child.")
    bs, depth, vocab = draft_logits.shape
    branch = min(vocab, budget, topk_cap or budget)
    if branch == 0 or depth == 0:
        none = torch.zeros(bs, 0, dtype=torch.int64, device=draft_logits.device)
        return _with_root(root_tokens, none, none, none, none, budget, depth)

    tokens, logps = _best_tokens(draft_logits, branch, draft_temperature)  # each [bs, depth, branch]
    levels = _best_prefixes_by_depth(tokens, logps, budget)
    # Levels lie one after another, so a stable sort leaves a parent before a child of equal weight.
    weights = torch.cat([level.logws for level in levels], dim=1)
    order = weights.argsort(dim=1, descending=True, stable=True)  # [bs, entries]
    rank = torch.empty_like(order).scatter_(
        1, order, torch.arange(order.shape[1], device=order.device).expand_as(order)
    )
    parent_entries = torch.cat([level.parent_entries for level in levels], dim=1)
    parents = torch.where(parent_entries < 0, 0, rank.gather(1, parent_entries.clamp(min=0)) + 1)
    depths = torch.cat([torch.full_like(level.tokens, d) for d, level in enumerate(levels, start=1)], dim=1)
    flat_tokens = torch.cat([level.tokens for level in levels], dim=1)
    best = order[:, :budget]
    return _with_root(
        root_tokens,
        flat_tokens.gather(1, best),
        parents.gather(1, best),
        depths.gather(1, best),
        weights.gather(1, best),
        budget,
        depth,
    )


@dataclass(frozen=True, slots=True)
class _Level:
    """The best prefixes of one depth, best first; an entry numbers prefixes through all depths."""

    tokens: Tensor  # int64 [bs, m], last token of each prefix
    logws: Tensor  # float32 [bs, m]
    parent_entries: Tensor  # int64 [bs, m], -1 for the root


def _best_tokens(logits: Tensor, branch: int, temperature: float | Tensor) -> tuple[Tensor, Tensor]:
    scale = torch.as_tensor(temperature, dtype=torch.float32)
    if scale.device.type == "cpu" and not bool(((scale > 0) & scale.isfinite()).all()):
        raise ValueError(f"draft_temperature is {temperature}; it divides logits, so it must be above 0.")
    scaled = logits.float()
    if isinstance(temperature, Tensor) or temperature != 1.0:
        scaled = scaled / scale.to(logits.device).reshape(-1, 1, 1)
    logps, tokens = _top_k_by_id(scaled.log_softmax(dim=-1), branch)
    return tokens, torch.where(logps.isnan(), -torch.inf, logps)  # a position without a distribution drafts nothing


def _top_k_by_id(logps: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row, equal values by ascending id, so that a smaller k gives a prefix of a larger one.

    `torch.topk` leaves open which of several equal values make the cut and in which order they come.
    """
    values, ids = logps.topk(min(k + 1, logps.shape[-1]), dim=-1)
    # A CPU can look whether the cut falls between equal values; a GPU would have to be waited for.
    if k < logps.shape[-1] and (logps.is_cuda or bool((values[..., k - 1] == values[..., k]).any())):
        least = values[..., k - 1 : k]
        above, tied = logps > least, logps == least
        room = k - above.sum(dim=-1, keepdim=True)
        kept = above | (tied & (tied.cumsum(dim=-1) <= room))
        values, ids = logps.masked_fill(~kept, -torch.inf).topk(k, dim=-1)
    ids, by_id = ids[..., :k].sort(dim=-1)
    values, by_value = values[..., :k].gather(-1, by_id).sort(dim=-1, descending=True, stable=True)
    return values, ids.gather(-1, by_value)


def _best_prefixes_by_depth(tokens: Tensor, logps: Tensor, budget: int) -> list[_Level]:
    bs, depth, branch = tokens.shape
    levels: list[_Level] = []
    parent_logws = logps.new_zeros(bs, 1)
    first_parent = -1  # entry of the first possible parent; the root counts as entry -1
    for d in range(depth):
        children = (parent_logws[:, :, None] + logps[:, d, None, :]).flatten(1)  # [bs, m * branch]
        logws, flat = children.sort(dim=1, descending=True, stable=True)
        logws, flat = logws[:, :budget], flat[:, :budget]
        parent = flat.div(branch, rounding_mode="floor")
        levels.append(_Level(tokens[:, d].gather(1, flat - parent * branch), logws, first_parent + parent))
        first_parent += parent_logws.shape[1]
        parent_logws = logws
    return levels


def _with_root(
    root_tokens: Tensor,
    tokens: Tensor,
    parents: Tensor,
    depths: Tensor,
    logws: Tensor,
    budget: int,
    max_depth: int,
) -> DraftTree:
    found = tokens.shape[1]
    real = logws > -torch.inf if found else torch.zeros_like(tokens, dtype=torch.bool)
    pad = (0, budget - found)

    def column(values: Tensor, root: Tensor, fill: float) -> Tensor:
        masked = torch.where(real, values, fill).to(root.dtype)
        return torch.cat([root[:, None], torch.nn.functional.pad(masked, pad, value=fill)], dim=1)

    zeros = torch.zeros_like(root_tokens)
    return DraftTree(
        tokens=column(tokens, root_tokens, 0),
        parents=column(parents, zeros - 1, -1),
        depths=column(depths, zeros, 0),
        node_logws=column(logws.float(), torch.zeros_like(root_tokens, dtype=torch.float32), -torch.inf),
        sizes=real.sum(dim=1) + 1,
        max_depth=max_depth,
    )
