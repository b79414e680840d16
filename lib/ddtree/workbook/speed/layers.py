"""What attention reads in a verify, layer by layer: queries, keys and values of nodes, and a cache of prefixes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ddtree.retrieve import tree_visibility
from ddtree.serving.mask import mask_cells, write_tree_mask
from ddtree.workbook.speed.inputs import Sizes, make_scene

LAYERS = 8  # each with keys of its own, so that no cache holds them
WORDS = 512  # of the vocabulary that trees are built over; attention sees their shape alone


@dataclass(frozen=True, slots=True)
class Layer:
    """What one layer's attention reads of a batch, as SGLang lays it."""

    q: Tensor  # [bs * nodes, heads, size]; rows of a fused projection, as k and v
    k: Tensor
    v: Tensor
    pool: tuple[Tensor, Tensor]  # [slots, KV heads, size]
    indptr: Tensor  # int32 [bs + 1]
    indices: Tensor  # int64, slots of the prefixes
    mask: Tensor  # uint8
    mask_starts: Tensor  # int64 [bs + 1]
    rows: Tensor  # int32 [bs + 1], where each request's nodes begin
    nodes: int
    scale: float


def make_layers(
    sizes: Sizes, shape: tuple[int, int, int], prefix: int, *, seed: int, device: torch.device
) -> list[Layer]:
    """`LAYERS` layers that see one batch of trees, each with numbers of its own; slots lie in no order."""
    heads, kv_heads, size = shape
    scene = make_scene(sizes, seed=seed, device=device, dtype=torch.float32, prefix=prefix)
    visible, lengths = tree_visibility(scene.tree), scene.prefix_len
    bs, nodes = scene.tree.tokens.shape
    rng = torch.Generator(device).manual_seed(seed)
    mask = torch.zeros(mask_cells(bs * prefix, bs, nodes), dtype=torch.uint8, device=device)
    write_tree_mask(mask, visible, lengths)
    starts = torch.arange(bs + 1, device=device) * (nodes * (prefix + nodes))
    indptr = torch.arange(bs + 1, device=device, dtype=torch.int32) * prefix
    rows = torch.arange(bs + 1, device=device, dtype=torch.int32) * nodes
    indices = torch.randperm(bs * prefix, generator=rng, device=device)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, device=device, dtype=torch.bfloat16)

    layers = []
    for _ in range(LAYERS):
        fused = normal(bs * nodes, heads + 2 * kv_heads, size)
        q, k, v = fused.split([heads, kv_heads, kv_heads], dim=1)
        pool = normal(bs * prefix, kv_heads, size), normal(bs * prefix, kv_heads, size)
        layers.append(Layer(q, k, v, pool, indptr, indices, mask, starts, rows, nodes, size**-0.5))
    return layers
