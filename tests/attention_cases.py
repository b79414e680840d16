"""Cases of tree attention and their right values, for the interpreter and for a GPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from ddtree.kernels.round_ops import mask_cells, write_tree_mask
from ddtree.kernels.tree_attention import tree_attention
from ddtree.retrieve import tree_visibility
from oracles import random_trees
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Case:
    """A batch as SGLang's attention has it: rows of a fused projection, scattered slots, the mask in one buffer."""

    q: Tensor
    k: Tensor
    v: Tensor
    pool: tuple[Tensor, Tensor]
    prefix: tuple[Tensor, Tensor]
    sight: tuple[Tensor, Tensor]
    visible: Tensor
    scale: float

    def answer(self) -> Tensor:
        return tree_attention(
            self.q, self.k, self.v, self.pool, self.prefix, self.sight, nodes=self.visible.shape[1], scale=self.scale
        )


def a_case(
    seed: int,
    lengths: list[int],
    *,
    most_nodes: int,
    heads: int,
    kv_heads: int,
    size: int,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
) -> Case:
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng).to(device, dtype)

    bs = len(lengths)
    tree = random_trees(np.random.default_rng(seed), bs, most_nodes=most_nodes, vocab=50, spare=1)
    visible, nodes = tree_visibility(tree), tree.width
    fused = normal(bs * nodes, (heads + 2 * kv_heads) * size)
    q, k, v = fused.split([heads * size, kv_heads * size, kv_heads * size], dim=1)
    total = sum(lengths)
    slots = (torch.randperm(2 * total + 1, generator=rng) + 1)[:total]
    indptr = torch.tensor([0, *np.cumsum(lengths).tolist()], dtype=torch.int32)
    prefix_len = torch.tensor(lengths)
    mask = torch.full((mask_cells(total, bs, nodes) + 3,), 7, dtype=torch.uint8)  # 7: never to be read
    write_tree_mask(mask, visible, prefix_len)
    starts = torch.nn.functional.pad((nodes * (prefix_len + nodes)).cumsum(0), (1, 0))
    return Case(
        q.view(-1, heads, size),
        k.view(-1, kv_heads, size),
        v.view(-1, kv_heads, size),
        (normal(2 * total + 2, kv_heads, size), normal(2 * total + 2, kv_heads, size)),
        (indptr.to(device), slots.to(device)),
        (mask.to(device), starts.to(device)),
        visible.to(device),
        size**-0.5,
    )


def right(case: Case) -> Tensor:
    """Softmax over prefix and seen nodes, in float64, a request and a head at a time."""
    bs, nodes, _ = case.visible.shape
    heads, kv_heads = case.q.shape[1], case.k.shape[1]
    q, k, v = (tensor.double().view(bs, nodes, -1, tensor.shape[2]) for tensor in (case.q, case.k, case.v))
    bounds = case.prefix[0].tolist()
    answers = []
    for b in range(bs):
        slots = case.prefix[1][bounds[b] : bounds[b + 1]]
        for head in range(heads):
            kv = head // (heads // kv_heads)
            keys = torch.cat([case.pool[0][slots, kv].double(), k[b, :, kv]])
            values = torch.cat([case.pool[1][slots, kv].double(), v[b, :, kv]])
            sees = torch.cat([torch.ones_like(case.visible[b, :, :1]).expand(-1, len(slots)), case.visible[b]], dim=1)
            scores = (q[b, :, head] @ keys.T * case.scale).masked_fill(~sees, -torch.inf)
            answers.append(scores.softmax(dim=1) @ values)
    return torch.stack(answers).view(bs, heads, nodes, -1).transpose(1, 2).flatten(0, 1)
