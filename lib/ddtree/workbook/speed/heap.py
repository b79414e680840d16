"""The builder to compare with: top-k on the device, then a heap per request on the host, and the tree copied back."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ddtree.draft_tree import DraftTree


def heap_tree(draft_logits: Tensor, root_tokens: Tensor, *, budget: int, topk_cap: int) -> DraftTree:
    """`build_tree` as DDTree's authors and the serving patches after them do it: one heap for each request.

    The same trees away from ties; shapes as `build_tree`'s, on the device of `draft_logits`.
    """
    bs, depth, vocab = draft_logits.shape
    branch = min(topk_cap, budget, vocab)
    logits = draft_logits.float()
    values, ids = logits.topk(branch, dim=-1)
    logps = (values - logits.logsumexp(dim=-1, keepdim=True)).tolist()
    ids_on_host, roots = ids.tolist(), root_tokens.tolist()

    q = budget + 1
    tokens, depths = (np.zeros((bs, q), dtype=np.int64) for _ in range(2))
    parents = np.full((bs, q), -1, dtype=np.int64)
    node_logws = np.full((bs, q), -np.inf, dtype=np.float32)
    sizes = np.empty(bs, dtype=np.int64)
    for b in range(bs):
        nodes = heap_row(logps[b], budget)
        n = sizes[b] = len(nodes) + 1
        tokens[b, 0], node_logws[b, 0] = roots[b], 0.0
        if nodes:
            weights, node_parents, node_depths, ranks = zip(*nodes, strict=True)
            parents[b, 1:n], depths[b, 1:n], node_logws[b, 1:n] = node_parents, node_depths, weights
            tokens[b, 1:n] = [ids_on_host[b][d - 1][r] for d, r in zip(node_depths, ranks, strict=True)]
    device = draft_logits.device

    def back(array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(device)

    return DraftTree(back(tokens), back(parents), back(depths), back(node_logws), back(sizes), max_depth=depth)


def heap_row(logps: Sequence[Sequence[float]], budget: int) -> list[tuple[float, int, int, int]]:
    """(weight, parent, depth, rank) of the best prefixes of [depth, branch] log-probabilities, best first.

    The best is popped; its next sibling and its first child are pushed, and nothing else can come next.
    """
    depth, branch = len(logps), len(logps[0]) if logps else 0
    if not depth or not branch:
        return []
    nodes: list[tuple[float, int, int, int]] = []
    heap = [(-logps[0][0], 1, 0, 0)]  # minus the weight, depth, parent, rank: equal weights as build_tree has them
    while heap and len(nodes) < budget:
        negative, d, parent, rank = heapq.heappop(heap)
        if negative == math.inf:
            break
        nodes.append((-negative, parent, d, rank))
        if rank + 1 < branch:
            heapq.heappush(heap, (negative + logps[d - 1][rank] - logps[d - 1][rank + 1], d, parent, rank + 1))
        if d < depth:
            heapq.heappush(heap, (negative - logps[d][0], d + 1, len(nodes), 0))
    return nodes
