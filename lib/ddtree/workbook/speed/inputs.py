"""Inputs like a language model's: logits that fall with the logarithm of their rank, and drafts that are often met."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ddtree.draft_tree import DraftTree
from ddtree.retrieve import RetrieveTables, compile_retrieve
from ddtree.sampling import SamplingParams, step_coins
from ddtree.tree import build_tree
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
