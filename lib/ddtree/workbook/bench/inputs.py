"""Make inputs like a language model's: logits that fall with the logarithm of their rank, queries, keys and values."""

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
DRAFT_NOISE = 0.3  # by which a draft's logits differ from the target's
ROTATED_BYTES = {"cuda": 2**27, "cpu": 2**25}  # of all input sets together, at least: twice an H200's L2 cache
MAX_SETS = 16
LAYERS = 8  # each with its own keys, so that no cache holds them
ATTENTION_VOCAB = 512  # of the trees that attention is measured on; only their shape matters to it


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a round's tensors are."""

    vocab: int
    batch: int
    budget: int
    depth: int
    topk_cap: int

    def __str__(self) -> str:
        return f"V {self.vocab}, batch {self.batch}, budget {self.budget}"


@dataclass(frozen=True, slots=True)
class RoundInputs:
    """One round's tensors for one batch, from the draft's logits to the target's."""

    draft_logits: Tensor  # [bs, depth, V]
    roots: Tensor  # int64 [bs]
    tree: DraftTree
    tables: RetrieveTables
    logits: Tensor  # [bs, q, V]
    coins: Tensor  # float32 [bs, q]
    final_coins: Tensor  # float32 [bs]
    prefix_len: Tensor  # int64 [bs]

    def sample(self, sampling: SamplingParams, backend: str = "auto") -> VerifyResult:
        """The round's verify."""
        return sample_tree(self.tree, self.tables, self.logits, sampling, self.coins, self.final_coins, backend=backend)


def make_inputs(sizes: Sizes, *, seed: int, device: torch.device, dtype: torch.dtype, prefix: int = 512) -> RoundInputs:
    """A round whose target rows depend only on a node's depth, with a drafter that is nearly right about them."""
    generator = torch.Generator(device).manual_seed(seed)
    base = zipf_logits((sizes.batch, sizes.depth + 1, sizes.vocab), generator=generator)
    noise = torch.randn(base[:, :-1].shape, generator=generator, device=device)
    draft_logits = base[:, :-1] + DRAFT_NOISE * noise
    del noise  # as large as the logits
    roots = torch.zeros(sizes.batch, dtype=torch.int64, device=device)
    tree = build_tree(draft_logits, roots, budget=sizes.budget, topk_cap=sizes.topk_cap)
    rows = torch.arange(sizes.batch, device=device)[:, None]
    coins, final_coins = step_coins(range(seed, seed + sizes.batch), [0] * sizes.batch, tree.width, device=device)
    return RoundInputs(
        draft_logits=draft_logits.to(dtype),
        roots=roots,
        tree=tree,
        tables=compile_retrieve(tree),
        logits=base[rows, tree.depths].to(dtype),
        coins=coins,
        final_coins=final_coins,
        prefix_len=torch.full((sizes.batch,), prefix, dtype=torch.int64, device=device),
    )


def make_input_sets(sizes: Sizes, *, seed: int, device: torch.device, dtype: torch.dtype) -> list[RoundInputs]:
    """So many rounds that no cache holds the logits of all their drafts, between 2 and `MAX_SETS`."""
    each = sizes.batch * sizes.depth * sizes.vocab * dtype.itemsize
    sets = min(max(math.ceil(ROTATED_BYTES[device.type] / each), 2), MAX_SETS)
    return [make_inputs(sizes, seed=seed + 1000 * number, device=device, dtype=dtype) for number in range(sets)]


def zipf_logits(shape: tuple[int, ...], *, generator: torch.Generator) -> Tensor:
    """float32 [..., V] on the generator's device: -EXPONENT * log(rank) plus noise, ranks permuted anew in every row.

    The permutation is id -> a * id + b modulo V, with an `a` that shares no factor with V.
    """
    *outer, vocab = shape
    rows = math.prod(outer)
    stream = np.random.default_rng(generator.initial_seed())
    factors = [_coprime(stream, vocab) for _ in range(rows)]
    offsets = stream.integers(0, vocab, size=rows)
    ids = torch.arange(vocab, device=generator.device)
    logits = torch.randn(rows, vocab, generator=generator, device=generator.device).mul_(NOISE)
    for row, (factor, offset) in enumerate(zip(factors, offsets.tolist(), strict=True)):
        logits[row] -= EXPONENT * ((factor * ids + offset) % vocab + 1).float().log()
    return logits.reshape(shape)


def _coprime(stream: np.random.Generator, n: int) -> int:
    while True:
        factor = int(stream.integers(1, n))
        if math.gcd(factor, n) == 1:
            return factor


def mean_rows_visited(input_sets: Sequence[RoundInputs], sampling: SamplingParams) -> float:
    """Rows of logits that the walks of a batch visit, averaged over the input sets.

    By the reference, which fits into any memory.
    """
    counts = [inputs.sample(sampling, backend="reference").accept_count for inputs in input_sets]
    return float(torch.stack(counts).double().add(1).sum(dim=1).mean())


@dataclass(frozen=True, slots=True)
class LayerInputs:
    """What one layer's attention reads for a batch, in SGLang's layout."""

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
) -> list[LayerInputs]:
    """`LAYERS` layers over one batch of trees, each with its own numbers, slots in random order.

    `shape` is (heads, KV heads, size of a head).
    """
    heads, kv_heads, size = shape
    inputs = make_inputs(sizes, seed=seed, device=device, dtype=torch.float32, prefix=prefix)
    bs, nodes = inputs.tree.tokens.shape
    generator = torch.Generator(device).manual_seed(seed)
    mask = torch.zeros(mask_cells(bs * prefix, bs, nodes), dtype=torch.uint8, device=device)
    write_tree_mask(mask, tree_visibility(inputs.tree), inputs.prefix_len)
    starts = torch.arange(bs + 1, device=device) * (nodes * (prefix + nodes))
    indptr = torch.arange(bs + 1, device=device, dtype=torch.int32) * prefix
    rows = torch.arange(bs + 1, device=device, dtype=torch.int32) * nodes
    indices = torch.randperm(bs * prefix, generator=generator, device=device)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=device, dtype=torch.bfloat16)

    layers = []
    for _ in range(LAYERS):
        q, k, v = normal(bs * nodes, heads + 2 * kv_heads, size).split([heads, kv_heads, kv_heads], dim=1)
        pool = normal(bs * prefix, kv_heads, size), normal(bs * prefix, kv_heads, size)
        layers.append(LayerInputs(q, k, v, pool, indptr, indices, mask, starts, rows, nodes, size**-0.5))
    return layers
