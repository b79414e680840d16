"""build_tree and compile_retrieve on a GPU: the heap's trees, no wait for the device, and CUDA graphs that replay."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from ddtree.retrieve import RetrieveTables, compile_retrieve, tree_attention_mask, tree_positions
from ddtree.tree import DraftTree, build_tree
from loops import for_each
from oracles import heap_prefixes, log_softmax64, prefixes_of, random_trees
from torch import Tensor

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

BATCH, DEPTH, VOCAB, PREFIX = 4, 7, 5003, 30  # no power of two divides the vocabulary
Round = tuple[DraftTree, RetrieveTables, Tensor, Tensor]


def logits_of(seed: int, batch: int = BATCH, depth: int = DEPTH, vocab: int = VOCAB) -> Tensor:
    return 3 * torch.randn(batch, depth, vocab, generator=torch.Generator().manual_seed(seed))


def whole(logits: Tensor, roots: Tensor, temperatures: Tensor, budget: int, cap: int) -> Round:
    """All that stands between the drafter's pass and the target's."""
    tree = build_tree(logits, roots, budget=budget, topk_cap=cap, draft_temperature=temperatures)
    prefix_len = torch.full_like(roots, PREFIX)
    key_len = PREFIX + budget + 1
    mask = tree_attention_mask(tree, prefix_len, key_len=key_len, dtype=torch.bfloat16)
    return tree, compile_retrieve(tree), mask, tree_positions(tree, prefix_len)


def flat(found: Round) -> list[Tensor]:
    tree, tables, mask, positions = found
    parts = [tree.tokens, tree.parents, tree.depths, tree.sizes, tree.node_logws]
    return [*parts, tables.index, tables.next_token, tables.next_sibling, mask, positions]


@pytest.fixture
def no_wait() -> Iterator[Callable[[], None]]:
    """Call it to make every wait for the device an error, until the test ends."""
    yield lambda: torch.cuda.set_sync_debug_mode("error")
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(("budget", "cap"), [(1, 1), (16, 4), (64, 16), (64, 64), (256, 16)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nodes_are_those_of_the_heap(budget: int, cap: int, dtype: torch.dtype) -> None:
    logits = logits_of(budget).to(dtype)
    tree = build_tree(logits.cuda(), torch.arange(BATCH).cuda(), budget=budget, topk_cap=cap)
    for row in range(BATCH):
        right = heap_prefixes(log_softmax64(logits[row].float().numpy()), budget + 1, cap)  # and the first left out
        found = prefixes_of(tree.to("cpu"), row)
        assert len(found) == budget
        expected = torch.tensor([weight for _, weight in right])
        torch.testing.assert_close(tree.node_logws[row, 1:].cpu(), expected[:budget], atol=2e-5, rtol=0)
        gaps = expected.diff().abs()
        clear = gaps > 1e-4  # nodes whose weight no other comes near
        clear[1:] &= gaps[:-1] > 1e-4
        assert all(found[i] == right[i][0] for i in range(budget) if clear[i])
        assert clear.any()


@pytest.mark.parametrize(("budget", "cap"), [(0, 4), (1, 1), (16, 4), (64, 16), (256, 16)])
def test_nothing_waits_for_the_device_once_a_shape_is_known(budget: int, cap: int, no_wait: Callable[[], None]) -> None:
    roots, temperatures = torch.zeros(BATCH, dtype=torch.int64).cuda(), torch.full((BATCH,), 0.7).cuda()
    inputs = [logits_of(seed).cuda() for seed in (1, 2)]
    whole(inputs[0], roots, temperatures, budget, cap)
    torch.cuda.synchronize()
    no_wait()
    whole(inputs[1], roots, temperatures, budget, cap)
    build_tree(inputs[1], roots, budget=budget, topk_cap=cap)


@pytest.mark.parametrize(("batch", "depth", "vocab", "budget", "cap"), [(4, 7, 5003, 16, 4), (3, 15, 32000, 64, 16)])
def test_a_graph_replays_with_other_logits_roots_and_temperatures(
    batch: int, depth: int, vocab: int, budget: int, cap: int
) -> None:
    logits = logits_of(0, batch, depth, vocab).cuda()
    roots, temperatures = torch.zeros(batch, dtype=torch.int64).cuda(), torch.ones(batch).cuda()
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        whole(logits, roots, temperatures, budget, cap)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = whole(logits, roots, temperatures, budget, cap)
    for seed in (1, 2, 3):
        logits.copy_(logits_of(seed, batch, depth, vocab))
        roots.fill_(seed)
        temperatures.copy_(torch.linspace(0.4, 1.6, batch))
        graph.replay()
        found = [part.clone() for part in flat(captured)]
        right = flat(whole(logits.clone(), roots.clone(), temperatures.clone(), budget, cap))
        for part, expected in zip(found, right, strict=True):
            assert torch.equal(part, expected)
        assert found[0][:, 0].tolist() == [seed] * batch


@pytest.mark.parametrize("budget", [0, 1, 16, 64, 256, 1000, 2500])
def test_links_and_masks_of_built_trees_are_those_of_a_cpu(budget: int) -> None:
    """2,500 nodes are more than the kernel compares."""
    tree = build_tree(logits_of(5), torch.zeros(BATCH, dtype=torch.int64), budget=budget, topk_cap=64)
    same_links_and_masks(tree, torch.arange(BATCH) * 333)


@for_each("seed", range(20))
def test_links_and_masks_of_trees_by_hand_are_those_of_a_cpu(seed: int) -> None:
    """Siblings stand in no order, some weigh the same, and every other batch has padding."""
    tree = random_trees(np.random.default_rng(seed), 50, most_nodes=5 + 6 * seed, vocab=500, spare=seed % 2)
    if seed % 3 == 0:
        tree.node_logws[:, 1:] = (tree.node_logws[:, 1:] / 2).round()
    same_links_and_masks(tree, torch.arange(50))


def same_links_and_masks(tree: DraftTree, prefix_len: Tensor) -> None:
    moved = tree.to("cuda")
    right, found = compile_retrieve(tree), compile_retrieve(moved)
    for name in ("index", "next_token", "next_sibling"):
        assert torch.equal(getattr(found, name).cpu(), getattr(right, name)), name
    key_len = int(prefix_len.max()) + tree.width + 5
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        here = tree_attention_mask(tree, prefix_len, key_len=key_len, dtype=dtype)
        there = tree_attention_mask(moved, prefix_len.cuda(), key_len=key_len, dtype=dtype)
        assert torch.equal(there.cpu(), here)


def test_equal_logits_go_to_the_lower_id_as_on_a_cpu() -> None:
    logits = torch.zeros(1, 3, VOCAB)
    logits[0, :, 4000:] = 1.0
    tree = build_tree(logits.cuda(), torch.zeros(1, dtype=torch.int64).cuda(), budget=20, topk_cap=6).to("cpu")
    same = build_tree(logits, torch.zeros(1, dtype=torch.int64), budget=20, topk_cap=6)
    assert torch.equal(tree.tokens, same.tokens)
    assert torch.equal(tree.parents, same.parents)
    assert tree.tokens[0, 1:].min() == 4000
    assert tree.tokens[0, 1:].max() == 4005
