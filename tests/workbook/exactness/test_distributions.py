"""The exact distributions of one verify call against fractions worked out node by node, apart from the library."""

from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
import torch
from ddtree.retrieve import compile_retrieve
from ddtree.tree import DraftTree
from ddtree.workbook.exactness.distributions import FixedTree, exact_distributions
from loops import for_each
from oracles import random_lists, right_distribution, sixteenths


def by_hand(fixed: FixedTree, parts: np.ndarray) -> tuple[dict, dict, dict]:
    """First token, second token by first child, and accepted count, summed over the enumerated whole distribution."""
    tree = DraftTree.from_parents([fixed.tokens], [_parents(fixed)], [list(range(0, -len(fixed.tokens), -1))])
    first: dict[int, Fraction] = defaultdict(Fraction)
    second: dict[int, dict[int, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    accepted: dict[int, Fraction] = defaultdict(Fraction)
    for (prefix, last), mass in right_distribution(tree, parts).items():
        text = (*prefix, last)
        first[text[0]] += mass
        accepted[len(prefix)] += mass
        if prefix:
            second[prefix[0]][text[1]] += mass
    return first, second, accepted


def _parents(fixed: FixedTree) -> list[int]:
    parents = [-1] * len(fixed.tokens)
    for node, children in enumerate(fixed.children):
        for child in children:
            parents[child] = node
    return parents


@for_each("seed", range(25))
def test_distributions_are_the_enumerated_ones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tokens, parents, weights = random_lists(rng, int(rng.integers(1, 9)), 5)
    parts = sixteenths(rng, len(tokens), 5)
    tree = DraftTree.from_parents([tokens], [parents], [weights], width=len(tokens) + 2)
    probs = torch.ones(1, len(tokens) + 2, 5)
    probs[0, : len(tokens)] = torch.from_numpy(parts / 16)
    fixed = FixedTree.of(tree, compile_retrieve(tree), probs)
    exact = exact_distributions(fixed)
    first, second, accepted = by_hand(fixed, parts)
    assert exact.first == pytest.approx([float(first[token]) for token in range(5)])
    assert exact.accepted == pytest.approx([float(accepted[d]) for d in range(len(exact.accepted))])
    assert len(exact.accepted) == int(tree.depths.max()) + 1
    for child, row in exact.second.items():
        found = second[tokens[child]]
        if found:
            total = sum(found.values())
            assert row == pytest.approx([float(found[token] / total) for token in range(5)])


def test_fork_by_hand() -> None:
    """Root with children 3 (p .5) and 5 (p .3); under 3 a child 2 (p .6): accepted 0, 1, 2 with .2, .5, .3."""
    tree = DraftTree.from_parents([[9, 3, 5, 2]], [[-1, 0, 0, 1]], [[0.0, -0.5, -1.0, -0.9]])
    probs = torch.full((1, 4, 10), 0.1)
    probs[0, 0] = torch.tensor([0, 0, 0, 0.5, 0, 0.3, 0.2, 0, 0, 0])
    probs[0, 1] = torch.tensor([0, 0, 0.6, 0, 0, 0, 0, 0.4, 0, 0])
    fixed = FixedTree.of(tree, compile_retrieve(tree), probs)
    assert fixed.children == [[1, 2], [3], [], []]
    assert fixed.draft_probs == pytest.approx([1, np.exp(-0.5), np.exp(-1), np.exp(-0.4)])
    exact = exact_distributions(fixed)
    assert exact.accepted == pytest.approx([0.2, 0.5, 0.3])
    assert set(exact.second) == {1, 2}
    assert exact.second[1] == pytest.approx([0, 0, 0.6, 0, 0, 0, 0, 0.4, 0, 0])


def test_padding_and_other_rows_are_left_out() -> None:
    tree = DraftTree.from_parents([[1], [4, 2, 3]], [[-1], [-1, 0, 1]], [[0.0], [0.0, -1.0, -1.5]], width=5)
    probs = torch.full((2, 5, 6), 1 / 6)
    tables = compile_retrieve(tree)
    assert FixedTree.of(tree, tables, probs).tokens == [1]
    second = FixedTree.of(tree, tables, probs, row=1)
    assert (second.tokens, second.children, second.depths) == ([4, 2, 3], [[1], [2], []], [0, 1, 2])
    assert second.rows.shape == (3, 6)
