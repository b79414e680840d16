"""Inputs like a language model's: logits that fall with the logarithm of their rank, queries, keys and values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ddtree.kernels.round_ops import mask_cells, write_tree_mask
from ddtree.retrieve import RetrieveTables, compile_retrieve, tree_visibility
from ddtree.sampling import SamplingParams, step_coins
from ddtree.tree import DraftTree, build_tree
from ddtree.verify import VerifyResult, sample_tree

EXPONENT = 1.3  # of Zipf's law
NOISE = 0.5  # standard deviation added to every logit, in nats
DRAFT_NOISE = 0.3  # what sets a draft's logits apart from the target's
ROTATED_BYTES = {"cuda": 2**27, "cpu": 2**25}  # of all sets together, at least: twice an H200's second-level cache
MOST_SETS = 16


@dataclass(frozen=True, slots=True)
class Scene:
    """One round's tensors from the draft's logits to the target's, of one batch."""

    draft_logits: Tensor  # [bs, depth, V]
    roots: Tensor  # int64 [bs]
    tree: DraftTree
    tables: RetrieveTables
    logits: Tensor  # [bs, q, V]
    coins: Tensor
    final_coins: Tensor
    prefix_len: Tensor  # int64 [bs]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a scene is."""

    vocab: int
    batch: int
    budget: int
    depth: int
    topk_cap: int

    def __str__(self) -> str:
        return f"V {self.vocab}, batch {self.batch}, budget {self.budget}"


def zipf_logits(shape: tuple[int, ...], *, generator: torch.Generator) -> Tensor:
    """float32 [..., V] on the generator's device: -EXPONENT * log(rank) and noise, ranks permuted anew in every row.

    The permutation is id -> a * id + b modulo V, with an `a` that shares no factor with V.
    """
    *outer, vocab = shape
    rows = math.prod(outer)
    stream = np.random.default_rng(generator.initial_seed())
    factors = [_coprime(stream, vocab) for _ in range(rows)]
    offsets = stream.integers(0, vocab, size=rows)
    device = generator.device
    ids = torch.arange(vocab, device=device)
    logits = torch.randn(rows, vocab, generator=generator, device=device).mul_(NOISE)
    for row, (factor, offset) in enumerate(zip(factors, offsets.tolist(), strict=True)):
        logits[row] -= EXPONENT * ((factor * ids + offset) % vocab + 1).float().log()
    return logits.reshape(shape)


def make_scene(sizes: Sizes, *, seed: int, device: torch.device, dtype: torch.dtype, prefix: int = 512) -> Scene:
    """A scene in which the target's rows depend on a node's depth alone, and the drafter is nearly right about them."""
    generator = torch.Generator(device).manual_seed(seed)
    base = zipf_logits((sizes.batch, sizes.depth + 1, sizes.vocab), generator=generator)
    noise = torch.randn(base[:, :-1].shape, generator=generator, device=device)
    draft_logits = base[:, :-1] + DRAFT_NOISE * noise
    del noise
    roots = torch.zeros(sizes.batch, dtype=torch.int64, device=device)
    tree = build_tree(draft_logits, roots, budget=sizes.budget, topk_cap=sizes.topk_cap)
    rows = torch.arange(sizes.batch, device=device)[:, None]
    coins, final_coins = step_coins(range(seed, seed + sizes.batch), [0] * sizes.batch, tree.width, device=device)
    return Scene(
        draft_logits=draft_logits.to(dtype),
        roots=roots,
        tree=tree,
        tables=compile_retrieve(tree),
        logits=base[rows, tree.depths].to(dtype),
        coins=coins,
        final_coins=final_coins,
        prefix_len=torch.full((sizes.batch,), prefix, dtype=torch.int64, device=device),
    )


def make_scenes(sizes: Sizes, *, seed: int, device: torch.device, dtype: torch.dtype) -> list[Scene]:
    """As many scenes as keep a cache from holding the draft's logits, between 2 and `MOST_SETS`."""
    each = sizes.batch * sizes.depth * sizes.vocab * dtype.itemsize
    sets = min(max(math.ceil(ROTATED_BYTES[device.type] / each), 2), MOST_SETS)
    return [make_scene(sizes, seed=seed + 1000 * number, device=device, dtype=dtype) for number in range(sets)]


def walked(scene: Scene, sampling: SamplingParams) -> VerifyResult:
    """The scene's verify by the reference, which fits into any memory."""
    return sample_tree(
        scene.tree, scene.tables, scene.logits, sampling, scene.coins, scene.final_coins, backend="reference"
    )


def rows_walked(scenes: Sequence[Scene], sampling: SamplingParams) -> float:
    """Rows of logits that the walks of a batch look at, on average over the scenes."""
    counts = [walked(scene, sampling).accept_count for scene in scenes]
    return float(torch.stack(counts).double().add(1).sum(dim=1).mean())


def _coprime(stream: np.random.Generator, n: int) -> int:
    while True:
        factor = int(stream.integers(1, n))
        if math.gcd(factor, n) == 1:
            return factor


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
