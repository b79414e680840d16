"""The budget that is chosen: costs, expected drafts and ratio by hand, the best of all budgets by enumeration."""

import dataclasses
import math

import pytest
import torch
from ddtree.adaptive_budget import (
    AcceptanceRatio,
    AutoBudget,
    RoundCost,
    expected_accepted,
    measure_round_cost,
    smoothed,
)
from ddtree.decode import generate
from ddtree.sampling import SamplingParams
from ddtree.tree import DraftTree, build_tree
from hypothesis import given
from hypothesis import strategies as st
from tiny import tiny_drafter, tiny_target
from wording import names

FLAT = RoundCost((0, 8), (10.0, 10.0), baseline_ms=9.0)
STEEP = RoundCost((0, 8), (10.0, 90.0), baseline_ms=9.0)
PADDING = {"tokens": 0, "parents": -1, "depths": 0, "node_logws": -math.inf}
PROMPTS = [[5, 1, 3], [6, 2, 4, 4], [7]]


def random_tree(seed: int, budget: int = 8, topk_cap: int | None = 3) -> DraftTree:
    logits = 2 * torch.randn(3, 4, 11, generator=torch.Generator().manual_seed(seed))
    return build_tree(logits, torch.tensor([1, 2, 3]), budget=budget, topk_cap=topk_cap)


def fields(tree: DraftTree) -> dict[str, list[object]]:
    return {f.name: getattr(tree, f.name).tolist() for f in dataclasses.fields(tree) if f.name != "max_depth"}


def test_cost_is_linear_between_what_was_measured() -> None:
    cost = RoundCost((0, 2, 6), (10.0, 12.0, 20.0), baseline_ms=9.0)
    assert cost.table().tolist() == [10, 11, 12, 14, 16, 18, 20]
    assert AutoBudget(cost).largest == 6


@pytest.mark.parametrize(
    ("budgets", "ms", "named"),
    [
        ((1, 2), (1.0, 2.0), "budgets 0"),
        ((0, 4, 2), (1.0, 2.0, 3.0), "budgets 0"),
        ((), (), "budgets 0"),
        ((0, 4), (1.0,), "1 2"),
        ((0, 4), (0.0, 1.0), "ms (0.0, 1.0)"),
        ((0, 4), (2.0, 1.0), "ms (2.0, 1.0)"),
        ((0, 4), (1.0, math.nan), "ms nan"),
        ((0, 4), (1.0, math.inf), "ms inf"),
    ],
)
def test_cost_that_cannot_be_is_refused(budgets: tuple[int, ...], ms: tuple[float, ...], named: str) -> None:
    with pytest.raises(ValueError, match=names(named)):
        RoundCost(budgets, ms, baseline_ms=1.0)


@pytest.mark.parametrize("baseline_ms", [0.0, -1.0, math.nan, math.inf])
def test_cost_of_a_round_alone_that_cannot_be_is_refused(baseline_ms: float) -> None:
    with pytest.raises(ValueError, match=names(f"baseline_ms {baseline_ms}")):
        RoundCost((0, 4), (1.0, 2.0), baseline_ms=baseline_ms)


def test_noise_is_levelled_out() -> None:
    assert smoothed([10, 14, 12, 20]) == (10, 13, 13, 20)


def test_expected_drafts_are_the_sum_of_prefix_probabilities() -> None:
    tree = DraftTree.from_parents(
        [[1, 2, 3, 4], [1, 2]], [[-1, 0, 1, 0], [-1, 0]], [[0, math.log(0.5), math.log(0.25), math.log(0.125)], [0, 0]]
    )
    assert expected_accepted(tree).tolist() == [
        pytest.approx([0, 0.5, 0.75, 0.875]),
        pytest.approx([0, 1, 1, 1]),
    ]


def test_free_nodes_are_all_taken_and_costly_ones_are_not() -> None:
    tree = random_tree(1)
    ratio = AcceptanceRatio.fresh(3).ratio
    assert torch.equal(AutoBudget(FLAT).sizes(tree, ratio), tree.sizes)
    assert AutoBudget(STEEP).sizes(tree, 0 * ratio).tolist() == [1, 1, 1]


def test_first_fall_is_not_the_end_when_cost_rises_in_steps() -> None:
    """A second node costs 6 ms, the further six next to nothing: stopping at the first fall would stay at the root."""
    weights = [0.0, *[math.log(0.3)] * 2, *[math.log(0.05)] * 6]
    tree = DraftTree.from_parents([list(range(9))], [[-1] + [0] * 8], [weights])
    cost = RoundCost((0, 1, 2, 8), (10.0, 16.0, 16.0, 16.1), baseline_ms=9.0)
    worth = [(1 + e) / c for e, c in zip(expected_accepted(tree)[0].tolist(), cost.table().tolist(), strict=True)]
    assert worth[1] < worth[0] < worth[8]
    assert AutoBudget(cost).sizes(tree, torch.ones(1)).tolist() == [9]


@given(st.integers(0, 2**31), st.lists(st.floats(0, 5), min_size=8, max_size=8), st.floats(0, 2))
def test_sizes_are_the_best_of_all_budgets(seed: int, rises: list[float], ratio: float) -> None:
    tree = random_tree(seed)
    ms = [10.0]
    for rise in rises:
        ms.append(ms[-1] + rise)
    auto = AutoBudget(RoundCost(tuple(range(9)), tuple(ms), baseline_ms=9.0))
    for row, size in enumerate(auto.sizes(tree, torch.full((3,), ratio)).tolist()):
        drafts = tree.node_logws[row, 1:].double().exp().cumsum(0)
        worth = [1 / ms[0], *((1 + ratio * float(drafts[n - 1])) / ms[n] for n in range(1, 9))]
        assert worth[size - 1] == pytest.approx(max(worth), rel=1e-5)


@given(st.integers(0, 2**31), st.lists(st.integers(1, 9), min_size=3, max_size=3))
def test_cut_tree_is_what_a_smaller_budget_builds(seed: int, sizes: list[int]) -> None:
    cut = random_tree(seed).cut(torch.tensor(sizes))
    assert cut.width == max(sizes)
    for row, size in enumerate(sizes):
        smaller = fields(random_tree(seed, budget=size - 1))
        for name, values in fields(cut).items():
            if name == "sizes":
                assert values[row] == size
            else:
                assert values[row][:size] == smaller[name][row]
                assert values[row][size:] == [PADDING[name]] * (cut.width - size)


def test_cut_leaves_a_root_and_invents_no_node() -> None:
    tree = DraftTree.from_parents([[1, 2], [1]], [[-1, 0], [-1]], [[0, -1], [0]])
    assert tree.cut(torch.tensor([0, 5])).sizes.tolist() == [1, 1]


def test_acceptance_ratio_starts_from_a_prior_of_eight() -> None:
    tree = DraftTree.from_parents([[1, 2, 3]] * 2, [[-1, 0, 1]] * 2, [[0, 0, math.log(0.5)]] * 2)
    acceptance = AcceptanceRatio.fresh(2)
    acceptance.update(tree, torch.tensor([2, 0]))
    assert acceptance.ratio.tolist() == pytest.approx([10 / 9.5, 8 / 9.5])
    acceptance.select(torch.tensor([1]))
    assert acceptance.ratio.tolist() == pytest.approx([8 / 9.5])


def chosen_texts(prompts: list[list[int]], seeds: list[int], cost: RoundCost) -> list[list[int]]:
    target = tiny_target()
    answers = generate(
        target,
        tiny_drafter(target),
        prompts,
        strategy="tree",
        sampling=SamplingParams(1.0),
        max_new_tokens=16,
        budget=AutoBudget(cost),
        topk_cap=3,
        seed=seeds,
    )
    return [answer.tokens for answer in answers]


def test_text_does_not_depend_on_neighbours() -> None:
    cost = RoundCost((0, 4, 8), (10.0, 11.0, 16.0), baseline_ms=9.0)
    together = chosen_texts(PROMPTS, [3, 4, 5], cost)
    assert together == [chosen_texts([p], [s], cost)[0] for p, s in zip(PROMPTS, [3, 4, 5], strict=True)]


def test_greedy_text_is_one_by_one_text_and_sizes_differ_by_round() -> None:
    target = tiny_target()
    drafter = tiny_drafter(target)
    options = {"sampling": SamplingParams(0.0), "max_new_tokens": 24}
    plain = generate(target, None, PROMPTS, strategy="autoregressive", **options)
    auto = AutoBudget(RoundCost((0, 4, 8), (10.0, 11.0, 16.0), baseline_ms=9.0))
    trees = generate(target, drafter, PROMPTS, strategy="tree", budget=auto, **options)
    assert [answer.tokens for answer in trees] == [answer.tokens for answer in plain]
    assert len({step.tree_size for answer in trees for step in answer.steps}) > 1


def test_cost_measured_on_a_pair_is_one() -> None:
    target = tiny_target()
    cost = measure_round_cost(target, tiny_drafter(target), PROMPTS[:1], budgets=(0, 1, 4), tokens=4)
    assert cost.budgets == (0, 1, 4)
    assert 0 < cost.baseline_ms < cost.ms[0], "a draft costs something, however noisy the measurement"


def test_a_budget_that_is_a_word_is_refused() -> None:
    target = tiny_target()
    with pytest.raises(ValueError, match=names("budget auto AutoBudget")):
        generate(target, tiny_drafter(target), PROMPTS, strategy="tree", sampling=SamplingParams(), budget="auto")
