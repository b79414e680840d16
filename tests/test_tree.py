"""build_tree gives the best prefixes of the published heap, and hand-written trees are refused unless sound."""

import math

import numpy as np
import pytest
import torch
from ddtree.tree import DraftTree, build_tree
from loops import for_each
from oracles import heap_prefixes, log_softmax64, prefixes_of
from torch import Tensor
from wording import names

A22_LAWS = ({10: 0.55, 11: 0.35, 12: 0.10}, {20: 0.5, 21: 0.3, 22: 0.2})


def random_logits(seed: int, *shape: int) -> Tensor:
    return 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def a22_logits() -> Tensor:
    logits = torch.full((1, 2, 30), -torch.inf)
    for position, distribution in enumerate(A22_LAWS):
        for token, p in distribution.items():
            logits[0, position, token] = math.log(p)
    return logits


@for_each("cap", [None, 1, 2, 5])
@for_each("budget", [1, 2, 7, 16, 40])
@for_each("shape", [(1, 1, 5), (3, 2, 4), (2, 4, 50), (4, 7, 11), (1, 3, 1)])
def test_nodes_are_those_of_the_heap(shape: tuple[int, int, int], budget: int, cap: int | None) -> None:
    logits = random_logits(sum(shape) * 100 + budget, *shape)
    roots = torch.arange(shape[0])
    tree = build_tree(logits, roots, budget=budget, topk_cap=cap)
    assert tree.tokens.shape == (shape[0], budget + 1)
    assert tree.tokens[:, 0].tolist() == roots.tolist()
    for row in range(shape[0]):
        right = heap_prefixes(log_softmax64(logits[row].numpy()), budget, cap)
        assert prefixes_of(tree, row) == [prefix for prefix, _ in right]
        weights = tree.node_logws[row, 1 : len(right) + 1].double().numpy()
        np.testing.assert_allclose(weights, [weight for _, weight in right], atol=1e-5)


@pytest.mark.parametrize("temperatures", [[0.3] * 3, [2.5] * 3, [0.2, 1.0, 3.0]])
def test_draft_temperature_divides_the_logits_of_its_row(temperatures: list[float]) -> None:
    logits = random_logits(5, 3, 4, 20)
    same = len(set(temperatures)) == 1
    choice = temperatures[0] if same else torch.tensor(temperatures)
    tree = build_tree(logits, torch.zeros(3, dtype=torch.int64), budget=12, draft_temperature=choice)
    for row, temperature in enumerate(temperatures):
        right = heap_prefixes(log_softmax64(logits[row].numpy(), temperature), 12)
        assert prefixes_of(tree, row) == [prefix for prefix, _ in right]


@for_each("seed", range(8))
def test_structure(seed: int) -> None:
    logits = random_logits(seed, 5, 5, 9)
    logits[torch.rand(logits.shape, generator=torch.Generator().manual_seed(seed)) < 0.4] = -torch.inf
    logits[..., 0] = 0.0
    tree = build_tree(logits, torch.full((5,), 8), budget=24, topk_cap=3)
    for row in range(5):
        size = int(tree.sizes[row])
        prefixes = prefixes_of(tree, row)
        assert len(set(prefixes)) == size - 1, "siblings differ"
        assert all(prefix[:-1] in {(), *prefixes[:i]} for i, prefix in enumerate(prefixes)), "a parent stands before"
        assert tree.depths[row, :size].tolist() == [0, *map(len, prefixes)]
        weights = tree.node_logws[row, :size]
        assert (weights.diff() <= 0).all()
        assert weights.isfinite().all()
        children = tree.parents[row, 1:size].bincount(minlength=1)
        assert int(children.max()) <= 3


@pytest.mark.parametrize("ties", [False, True])
def test_smaller_budgets_are_prefixes_of_larger_trees(ties: bool) -> None:
    logits = random_logits(11, 4, 5, 60)
    if ties:
        logits = logits.round()
    roots = torch.zeros(4, dtype=torch.int64)
    largest = build_tree(logits, roots, budget=40)
    for budget in range(40):
        tree = build_tree(logits, roots, budget=budget)
        for name in ("tokens", "parents", "depths", "node_logws"):
            assert torch.equal(getattr(tree, name), getattr(largest, name)[:, : budget + 1]), (budget, name)


@pytest.mark.parametrize("budget", [3, 8, 24])
def test_equal_weights_go_to_the_smaller_depth(budget: int) -> None:
    """Certain positions add nothing to a prefix's weight, so a child weighs as much as its parent."""
    logits = torch.full((2, 6, 9), -torch.inf)
    logits[:, [0, 1, 3, 5], 4] = 0.0
    logits[:, [2, 4], 2:4] = 0.0
    tree = build_tree(logits, torch.zeros(2, dtype=torch.int64), budget=budget)
    for row in range(2):
        size = int(tree.sizes[row])
        assert size == min(budget + 1, 1 + 1 + 1 + 2 + 2 + 4 + 4)
        keys = list(zip((-tree.node_logws[row, :size]).tolist(), tree.depths[row, :size].tolist(), strict=True))
        assert keys == sorted(keys)
        assert all(int(tree.parents[row, node]) < node for node in range(1, size))
        assert tree.depths[row, :size].tolist()[:3] == [0, 1, 2]


def test_numbers_worked_out_by_hand() -> None:
    five = build_tree(a22_logits(), torch.tensor([7]), budget=5)
    assert prefixes_of(five, 0) == [(10,), (11,), (10, 20), (11, 20), (10, 21)]
    np.testing.assert_allclose(five.node_logws[0].exp(), [1, 0.55, 0.35, 0.275, 0.175, 0.165], rtol=1e-5)
    chain = build_tree(a22_logits(), torch.tensor([7]), budget=5, topk_cap=1)
    assert prefixes_of(chain, 0) == [(10,), (10, 20)]
    assert prefixes_of(build_tree(a22_logits(), torch.tensor([7]), budget=1), 0) == [(10,)]


def test_budget_beyond_the_prefixes_takes_them_all_and_pads() -> None:
    tree = build_tree(a22_logits(), torch.tensor([7]), budget=100)
    drafted = prefixes_of(tree, 0)
    assert set(drafted) == {(a,) for a in A22_LAWS[0]} | {(a, b) for a in A22_LAWS[0] for b in A22_LAWS[1]}
    assert len(drafted) == 12
    assert tree.sizes.tolist() == [13]
    assert (tree.tokens[0, 13:] == 0).all()
    assert (tree.parents[0, 13:] == -1).all()
    assert (tree.depths[0, 13:] == 0).all()
    assert (tree.node_logws[0, 13:] == -torch.inf).all()


@pytest.mark.parametrize(("depth", "budget"), [(3, 0), (0, 0), (0, 4)])
def test_nothing_to_draft_leaves_the_root_alone(depth: int, budget: int) -> None:
    tree = build_tree(torch.zeros(2, depth, 5), torch.tensor([3, 4]), budget=budget)
    assert tree.sizes.tolist() == [1, 1]
    assert tree.tokens.tolist() == [[3] + [0] * budget, [4] + [0] * budget]
    assert tree.parents.tolist() == [[-1] * (budget + 1)] * 2
    assert tree.node_logws[:, 0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("broken", [-torch.inf, torch.nan])
def test_position_without_a_distribution_ends_the_tree(broken: float) -> None:
    logits = a22_logits().repeat(1, 2, 1)
    logits[0, 2] = broken
    tree = build_tree(logits, torch.tensor([7]), budget=20)
    assert prefixes_of(tree, 0) == [prefix for prefix, _ in heap_prefixes(log_softmax64(logits[0, :2].numpy()), 20)]


def test_dtypes_are_those_of_the_contract() -> None:
    tree = build_tree(random_logits(0, 2, 3, 8).bfloat16(), torch.tensor([1, 2]), budget=6)
    by_hand = DraftTree.from_parents([[1, 2]], [[-1, 0]], [[0.0, -1.0]])
    for each in (tree, by_hand):
        found = (each.tokens, each.parents, each.depths, each.sizes)
        assert all(t.dtype == torch.int64 for t in found)
        assert each.node_logws.dtype == torch.float32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budget": -1}, "budget -1"),
        ({"topk_cap": 0}, "topk_cap 0"),
        ({"draft_temperature": 0.0}, "draft_temperature 0.0"),
        ({"draft_temperature": -1.0}, "draft_temperature -1.0"),
        ({"draft_temperature": math.nan}, "draft_temperature nan"),
        ({"draft_temperature": torch.tensor([1.0, 0.0])}, "draft_temperature"),
        ({"root_tokens": torch.zeros(3, dtype=torch.int64)}, "[2, 3, 8] [3]"),
        ({"draft_logits": torch.zeros(2, 8)}, "draft_logits [bs, depth, V]"),
    ],
)
def test_arguments_out_of_range_are_named(change: dict, message: str) -> None:
    arguments = {"draft_logits": torch.zeros(2, 3, 8), "root_tokens": torch.zeros(2, dtype=torch.int64), "budget": 4}
    with pytest.raises(ValueError, match=names(message)):
        build_tree(**{**arguments, **change})


def test_from_parents_pads_ragged_rows() -> None:
    tree = DraftTree.from_parents([[9, 3, 5, 2], [4]], [[-1, 0, 0, 1], [-1]], [[0.0, -0.5, -1.0, -0.9], [0.0]], width=5)
    assert tree.tokens.tolist() == [[9, 3, 5, 2, 0], [4, 0, 0, 0, 0]]
    assert tree.parents.tolist() == [[-1, 0, 0, 1, -1], [-1] * 5]
    assert tree.depths.tolist() == [[0, 1, 1, 2, 0], [0] * 5]
    assert tree.sizes.tolist() == [4, 1]
    assert (tree.max_depth, tree.width, tree.batch_size) == (2, 5, 2)
    assert tree.node_logws[1].tolist() == [0.0, *[-math.inf] * 4]


@pytest.mark.parametrize(
    ("tokens", "parents", "message"),
    [
        ([9, 3, 3], [-1, 0, 0], "node 2 token 3 node 0"),
        ([9, 3, 5], [-1, 2, 1], "node 1 parent 2"),
        ([9, 3, 5], [-1, 0, 2], "node 2 parent 2"),
        ([9, 3, 5], [-1, 0, -1], "node 2 parent -1"),
        ([9, 3], [0, 0], "parent -1 0"),
        ([9, -3], [-1, 0], "node 1 token -3"),
        ([9, 3], [-1], "2 1 2"),
        ([], [], "root"),
    ],
)
def test_unsound_tree_is_refused_and_located(tokens: list[int], parents: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=names(f"row 1 {message}")):
        DraftTree.from_parents([[1], tokens], [[-1], parents], [[0.0], [0.0] * len(tokens)])


def test_cousins_may_share_a_token() -> None:
    tree = DraftTree.from_parents([[9, 1, 2, 5, 5]], [[-1, 0, 0, 1, 2]], [[0.0, -1, -2, -3, -4]])
    assert prefixes_of(tree, 0) == [(1,), (2,), (1, 5), (2, 5)]


def test_from_parents_refuses_a_width_too_small_and_uneven_rows() -> None:
    with pytest.raises(ValueError, match=names("width 1 2")):
        DraftTree.from_parents([[1, 2]], [[-1, 0]], [[0.0, -1.0]], width=1)
    with pytest.raises(ValueError, match=names("2 1 1")):
        DraftTree.from_parents([[1], [2]], [[-1]], [[0.0]])
