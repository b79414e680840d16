"""The builder's kernels against the torch operations that stand in for them elsewhere; run by test_builder.py."""

from dataclasses import fields

import numpy as np
import pytest
import torch
from ddtree import kernels
from ddtree.commit import Commit, plan_commit
from ddtree.kernels import ops
from ddtree.retrieve import compile_retrieve, tree_attention_mask
from ddtree.topk import topk_tokens
from ddtree.tree import DraftTree, build_tree, candidate_pairs, select_nodes
from ddtree.verify import verify_tree_greedy
from loops import for_each
from oracles import random_trees
from torch import Tensor

SIZES = [  # batch, depth, vocabulary, budget, top-k cap
    (2, 3, 90, 12, 4),
    (1, 1, 17, 2, 2),
    (2, 2, 90, 1, 1),
    (1, 2, 5, 6, 2),
    (1, 3, 300, 24, 16),
    (3, 2, 40, 7, 2),
    (1, 5, 70, 40, 4),
]
KINDS = ["ties", "half precision", "gaps", "nothing left", "NaN", "infinity"]
CASES = [("random", *sizes) for sizes in SIZES] + [(kind, *SIZES[0]) for kind in KINDS]


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a short row has many chunks and several parts; the interpreter is slow."""
    monkeypatch.setattr(ops, "CHUNK", 16)
    monkeypatch.setattr(ops, "ROWS", 2)


def logits_of(kind: str, batch: int, depth: int, vocab: int) -> Tensor:
    logits = 3 * torch.randn(batch, depth, vocab, generator=torch.Generator().manual_seed(vocab))
    if kind == "ties":
        logits = (2 * logits).round() / 8
    if kind == "half precision":
        logits = logits.bfloat16()
    if kind == "gaps":
        drawn = torch.rand(logits.shape, generator=torch.Generator().manual_seed(1))
        logits[..., 1:][drawn[..., 1:] < 0.9] = -torch.inf
    if kind in ("nothing left", "NaN", "infinity"):
        logits[0, -1] = -torch.inf
        logits[0, -1, vocab // 2] = {"nothing left": -torch.inf, "NaN": torch.nan, "infinity": torch.inf}[kind]
    return logits


@pytest.mark.parametrize(("kind", "batch", "depth", "vocab", "budget", "cap"), CASES)
def test_same_favourites(kind: str, batch: int, depth: int, vocab: int, budget: int, cap: int) -> None:
    logits, branch = logits_of(kind, batch, depth, vocab), min(budget, cap)
    assert kernels.fits_topk(vocab, branch)
    for temperatures in (1.0, 0.6, torch.linspace(0.3, 1.7, batch)):
        tokens, logps = kernels.topk_tokens(logits, branch, temperatures)
        right_tokens, right_logps = topk_tokens(logits, branch, temperatures)
        possible = right_logps > -torch.inf
        assert torch.equal(logps > -torch.inf, possible)
        assert torch.equal(tokens[possible], right_tokens[possible])
        torch.testing.assert_close(logps, right_logps, atol=3e-6, rtol=1e-6)


@pytest.mark.parametrize(("kind", "batch", "depth", "vocab", "budget", "cap"), CASES)
def test_same_prefixes(kind: str, batch: int, depth: int, vocab: int, budget: int, cap: int) -> None:
    branch, roots = min(budget, cap), torch.arange(batch) + 5
    tokens, logps = topk_tokens(logits_of(kind, batch, depth, vocab), branch, 1.0)
    plan = candidate_pairs(depth, branch, budget, tokens.device)
    tables = (plan.parent, plan.token, plan.pair_starts, plan.entry_starts, plan.depth)
    assert kernels.fits_selection(plan.widest, len(plan.depth), budget + 1)
    grown = kernels.select_nodes(tokens, logps, roots, tables, plan.widest, budget, budget + 1)
    found, right = DraftTree(*grown, max_depth=depth), select_nodes(tokens, logps, roots, budget)
    for name in ("tokens", "parents", "depths", "node_logws", "sizes"):
        assert torch.equal(getattr(found, name), getattr(right, name)), name


def test_narrow_roots_are_widened() -> None:
    tokens, logps = topk_tokens(logits_of("random", 2, 3, 90), 4, 1.0)
    plan = candidate_pairs(3, 4, 6, tokens.device)
    tables = (plan.parent, plan.token, plan.pair_starts, plan.entry_starts, plan.depth)
    grown = kernels.select_nodes(tokens, logps, torch.tensor([7, 9], dtype=torch.int32), tables, plan.widest, 6, 7)
    assert grown[0][:, 0].tolist() == [7, 9]
    assert grown[0].dtype == torch.int64


def test_roots_may_be_a_column_of_something_wider() -> None:
    tokens, logps = topk_tokens(logits_of("random", 3, 3, 90), 4, 1.0)
    plan = candidate_pairs(3, 4, 6, tokens.device)
    tables = (plan.parent, plan.token, plan.pair_starts, plan.entry_starts, plan.depth)
    blocks = torch.tensor([[7, 0, 0, 0], [9, 0, 0, 0], [8, 0, 0, 0]])
    grown = kernels.select_nodes(tokens, logps, blocks[:, 0], tables, plan.widest, 6, 7)
    assert grown[0][:, 0].tolist() == [7, 9, 8]


def trees(kind: str) -> DraftTree:
    """Built trees, whose nodes stand best first, and trees by hand, whose siblings stand anyhow and weigh the same."""
    if kind == "built":
        return build_tree(logits_of("gaps", 3, 4, 40), torch.arange(3), budget=20, topk_cap=3)
    if kind == "root alone":
        return build_tree(torch.zeros(2, 3, 9), torch.arange(2), budget=0)
    tree = random_trees(np.random.default_rng(5), 6, most_nodes=19, vocab=30, spare=3)
    if kind == "equal weights":
        tree.node_logws[:, 1:] = (tree.node_logws[:, 1:] / 2).round()
    return tree


@pytest.mark.parametrize("compared", [64, 8192])
@pytest.mark.parametrize("kind", ["built", "root alone", "by hand", "equal weights"])
def test_same_links(kind: str, compared: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "PAIRS_PER_PROGRAM", compared)
    tree = trees(kind)
    right = compile_retrieve(tree)
    found = kernels.link_nodes(tree.parents, tree.node_logws, tree.sizes)
    for table, name in zip(found, ("index", "next_token", "next_sibling"), strict=True):
        assert torch.equal(table, getattr(right, name)), name


@pytest.mark.parametrize("dtype", kernels.MASK_DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["built", "root alone", "by hand"])
def test_same_mask(kind: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "MASK_BLOCK", 16)
    tree = trees(kind)
    prefix_len = torch.arange(tree.batch_size) * 7
    for key_len in (int(prefix_len.max()) + tree.width, 64):
        right = tree_attention_mask(tree, prefix_len, key_len=key_len, dtype=dtype)
        assert torch.equal(kernels.tree_mask(tree.parents, prefix_len, key_len, dtype), right)


@for_each("seed", range(4))
def test_same_commit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = random_trees(rng, rows=1 + 3 * seed, most_nodes=14, vocab=3, spare=1)
    argmax = torch.tensor(rng.integers(3, size=(tree.batch_size, tree.width)))
    result = verify_tree_greedy(tree, compile_retrieve(tree), argmax)
    prefix_len = torch.tensor(rng.integers(50, size=tree.batch_size))
    right = plan_commit(tree, result, prefix_len)
    found = Commit(
        *kernels.map_accepted(result.predict, result.accept_index, result.accept_count, prefix_len, tree.width)
    )
    for field in fields(Commit):
        assert torch.equal(getattr(found, field.name), getattr(right, field.name)), field.name
