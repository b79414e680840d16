"""Map the flat accept index back to tree nodes, KV rows and tokens: what one round commits.

Greedy and sampled results take the same path.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ddtree import kernels
from ddtree.tree import DraftTree
from ddtree.verify import VerifyResult


@dataclass(frozen=True, slots=True)
class Commit:
    """What one round commits: the KV rows and hidden rows of `path`. The final token has no KV yet."""

    path: Tensor  # int64 [bs, max_depth+1], local nodes from the root on; -1 padded
    lengths: Tensor  # int64 [bs], nodes on the path: accepted drafts + 1
    tokens: Tensor  # int64 [bs, max_depth+1], accepted drafts, then the final token; -1 padded
    next_root: Tensor  # int64 [bs], the final token
    new_len: Tensor  # int64 [bs], prefix length after the commit


def plan_commit(tree: DraftTree, result: VerifyResult, prefix_len: Tensor) -> Commit:
    """Map the flat accept index back to local nodes: flat minus b * q.

    `prefix_len` is int64 [bs], tokens with KV before this round.
    """
    map_accepted = kernels.choose(tree.tokens, gpu=kernels.map_accepted, torch=_map_accepted)
    return Commit(*map_accepted(result.predict, result.accept_index, result.accept_count, prefix_len, tree.width))


def _map_accepted(
    predict: Tensor, accept_index: Tensor, accept_count: Tensor, prefix_len: Tensor, q: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """path, lengths, tokens, next_root and new_len, in torch."""
    first = torch.arange(len(accept_index), device=accept_index.device)[:, None] * q
    accepted = accept_index >= 0
    path = torch.where(accepted, accept_index - first, -1)
    # predict holds, at each node of the path, the token that follows it. A raw -1 would read the last element.
    following = predict.long()[accept_index.clamp(min=0).long()]
    lengths = accept_count.long() + 1
    next_root = following.gather(1, lengths[:, None] - 1)[:, 0]
    return path, lengths, torch.where(accepted, following, -1), next_root, prefix_len + lengths


def finish_step(tokens: Sequence[int], *, eos_ids: Collection[int], remaining: int) -> tuple[list[int], str | None]:
    """Cut a round's tokens at the first EOS (kept) within the limit, else at the limit.

    Returns the kept tokens and "eos", "length" or None. Every count a report shows uses what is kept here.
    """
    kept = list(tokens[:remaining])
    for i, token in enumerate(kept):
        if token in eos_ids:
            return kept[: i + 1], "eos"
    return kept, "length" if len(kept) == remaining else None
