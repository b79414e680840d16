"""The draft tree: the best prefixes under the drafter's per-position distributions, a parent before its children."""

from __future__ import annotations

import torch
from torch import Tensor

from ddtree.draft_tree import DraftTree
from ddtree.likeliest import likeliest_tokens
from ddtree.prefixes import best_prefixes

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
