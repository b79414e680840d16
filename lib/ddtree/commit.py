"""What a round keeps: the flat accept index mapped back to tree nodes, KV rows and tokens, one path for every mode."""

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
    """What a round keeps. KV rows and hidden rows kept are exactly those of `path`; the final token has no KV yet."""

    path: Tensor  # int64 [bs, max_depth+1], local nodes from the root on; -1 padded
    lengths: Tensor  # int64 [bs], nodes on the path: accepted drafts + 1
    tokens: Tensor  # int64 [bs, max_depth+1], accepted drafts, then the final token; -1 padded
    next_root: Tensor  # int64 [bs], the final token
    new_len: Tensor  # int64 [bs], prefix length after the commit


def plan_commit(tree: DraftTree, result: VerifyResult, prefix_len: Tensor) -> Commit:
    """Map the flat accept index back to local nodes: flat minus b * q.

    Greedy and sampled results take this one path. `prefix_len` is int64 [bs], tokens with KV before this round.
    """
    bs, q = tree.tokens.shape
    if kernels.run_on(tree.tokens):
        walked = (result.predict, result.accept_index, result.accept_count)
        return Commit(*kernels.kept(*walked, prefix_len, q))
    first = torch.arange(bs, device=tree.tokens.device)[:, None] * q
    kept = result.accept_index >= 0
    path = torch.where(kept, result.accept_index - first, -1)
    # predict holds, at each node of the path, the token that follows it. A raw -1 would read the last element.
    after = result.predict.long()[result.accept_index.clamp(min=0).long()]
    lengths = result.accept_count.long() + 1
    return Commit(
        path=path,
        lengths=lengths,
        tokens=torch.where(kept, after, -1),
        next_root=after.gather(1, lengths[:, None] - 1)[:, 0],
        new_len=prefix_len + lengths,
    )


def finish_step(tokens: Sequence[int], *, eos_ids: Collection[int], remaining: int) -> tuple[list[int], str | None]:
    """Cut a round's tokens at the first EOS (kept) within the limit, else at the limit.

    Returns the kept tokens and "eos", "length" or None. Every count a report shows uses what is kept here.
    """
    kept = list(tokens[:remaining])
    for i, token in enumerate(kept):
        if token in eos_ids:
            return kept[: i + 1], "eos"
    return kept, "length" if len(kept) == remaining else None
