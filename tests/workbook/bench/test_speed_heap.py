"""The heap to compare with builds the same trees as build_tree and as the oracle's own heap."""

import pytest
import torch
from ddtree.tree import build_tree
from ddtree.workbook.bench.baselines import heap_row, heap_tree
from oracles import heap_prefixes, log_softmax64, prefixes_of


@pytest.mark.parametrize(("budget", "cap"), [(1, 1), (7, 2), (16, 4), (40, 40), (64, 16)])
@pytest.mark.parametrize("shape", [(1, 1, 5), (3, 2, 4), (2, 4, 50), (4, 7, 300)])
def test_same_trees_as_ours_and_as_the_oracle(shape: tuple[int, int, int], budget: int, cap: int) -> None:
    logits = 3 * torch.randn(shape, generator=torch.Generator().manual_seed(budget), dtype=torch.float32)
    roots = torch.arange(shape[0])
    heap, ours = (build(logits, roots, budget=budget, topk_cap=cap) for build in (heap_tree, build_tree))
    assert torch.equal(heap.sizes, ours.sizes)
    assert torch.equal(heap.tokens, ours.tokens)
    assert torch.equal(heap.parents, ours.parents)
    assert torch.equal(heap.depths, ours.depths)
    torch.testing.assert_close(heap.node_logws, ours.node_logws, atol=1e-5, rtol=0)
    for row in range(shape[0]):
        right = heap_prefixes(log_softmax64(logits[row].numpy()), budget, cap)
        assert prefixes_of(heap, row) == [prefix for prefix, _ in right]


def test_equal_weights_go_to_the_smaller_depth_then_to_the_earlier_parent() -> None:
    assert heap_row([[0.0, -1.0], [0.0, -1.0]], 6) == [
        (0.0, 0, 1, 0),
        (0.0, 1, 2, 0),
        (-1.0, 0, 1, 1),
        (-1.0, 1, 2, 1),
        (-1.0, 3, 2, 0),
        (-2.0, 3, 2, 1),
    ]


def test_nothing_impossible_is_drafted() -> None:
    assert heap_row([[-0.5, -float("inf")]], 4) == [(-0.5, 0, 1, 0)]
    assert heap_row([], 4) == []
