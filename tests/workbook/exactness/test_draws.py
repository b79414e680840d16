"""Draws of the suite are the shipped verify's, token for token; each control is wrong by the right amount."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from ddtree.retrieve import compile_retrieve
from ddtree.tree import DraftTree
from ddtree.verify import backend_report
from ddtree.workbook.exactness.distributions import (
    NEGATIVE_CONTROLS,
    TARGET_ONLY,
    Draws,
    FixedTree,
    draw,
    exact_distributions,
    replay,
)
from loops import for_each
from oracles import random_lists

USABLE = [status.name for status in backend_report("cpu") if status.usable]
CONTROL = {rule.name: rule for rule in NEGATIVE_CONTROLS}


def coins(seed: int, n: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    stream = np.random.default_rng(seed)
    return stream.random((n, width), dtype=np.float32), stream.random(n, dtype=np.float32)


def random_case(seed: int) -> tuple[DraftTree, FixedTree]:
    """A random tree; rows of every kind: spread, peaked, with zeros, one-hot, and all on the children."""
    rng = np.random.default_rng(seed)
    nodes, vocab = int(rng.integers(1, 14)), int(rng.integers(2, 30))
    tokens, parents, weights = random_lists(rng, min(nodes, vocab), vocab)
    tree = DraftTree.from_parents([tokens], [parents], [weights])
    rows = rng.dirichlet(np.full(vocab, 0.3), size=len(tokens))
    rows[rng.random(rows.shape) < 0.3] = 0
    rows[np.arange(len(rows)), rng.integers(vocab, size=len(rows))] += 0.05
    for node in range(len(tokens)):
        children = [tokens[i] for i, parent in enumerate(parents) if parent == node]
        if children and rng.random() < 0.3:
            keep = np.zeros(vocab)
            keep[children] = rng.random(len(children)) + 0.01
            rows[node] = keep
    rows /= rows.sum(axis=1, keepdims=True)
    probs = torch.from_numpy(rows).float()[None]
    return tree, FixedTree.of(tree, compile_retrieve(tree), probs)


def same(one: Draws, other: Draws) -> bool:
    return all(np.array_equal(getattr(one, n), getattr(other, n)) for n in ("first", "child", "second", "accepted"))


@pytest.mark.parametrize("backend", USABLE)
@for_each("seed", range(40))
def test_same_coins_same_tokens_as_the_shipped_verify(seed: int, backend: str) -> None:
    tree, fixed = random_case(seed)
    node_coins, finals = coins(seed, 200, tree.width + 3)
    node_coins[:20], finals[10:30] = 0.0, 0.0
    node_coins[30:40] = finals[35:45] = np.float32(1 - 2**-24)
    drawn = draw(TARGET_ONLY, fixed, node_coins, finals)
    assert same(drawn, replay(tree, fixed, node_coins, finals, backend=backend))


def test_coins_on_a_running_sum_are_decided_as_the_shipped_verify_decides() -> None:
    for seed in range(20):
        tree, fixed = random_case(seed)
        sums = [np.cumsum(fixed.rows[n, fixed.child_tokens(n)].numpy()) for n in range(len(fixed.tokens))]
        edges = np.concatenate([np.array([0.0], np.float32), *sums])
        edges = np.unique(
            np.concatenate([edges, np.nextafter(edges, np.float32(0)), np.nextafter(edges, np.float32(2))])
        )
        edges = edges[(edges >= 0) & (edges < 1)].astype(np.float32)
        node_coins = np.repeat(edges[:, None], tree.width, axis=1)
        finals = edges[::-1].copy()
        assert same(draw(TARGET_ONLY, fixed, node_coins, finals), replay(tree, fixed, node_coins, finals))


def test_a_different_rule_does_not_replay() -> None:
    """Or the test above could not fail."""
    wrong_by_rule = [rule for rule in NEGATIVE_CONTROLS if replace(rule, name=TARGET_ONLY.name) != TARGET_ONLY]
    assert len(wrong_by_rule) == 4, "one control is wrong by the rows that it is given"
    for rule in wrong_by_rule:
        found = []
        for seed in range(20):
            tree, fixed = random_case(seed)
            node_coins, finals = coins(seed, 200, tree.width)
            found.append(same(draw(rule, fixed, node_coins, finals), replay(tree, fixed, node_coins, finals)))
        assert not all(found), rule.name


# The controls, by the numbers of real failures


def shares(rule_name: str, p: list[float], children: list[int], q: list[float] | None = None) -> np.ndarray:
    """First-token shares of 200,000 calls at a root with these children."""
    q = q or [0.5 ** (i + 1) for i in range(len(children))]
    tree = DraftTree.from_parents([[0, *children]], [[-1, *[0] * len(children)]], [[0.0, *np.log(q).tolist()]])
    probs = torch.tensor([[p] * tree.width])
    fixed = FixedTree.of(tree, compile_retrieve(tree), probs)
    drawn = draw(CONTROL.get(rule_name, TARGET_ONLY), fixed, *coins(1, 200_000, tree.width))
    return np.bincount(drawn.first, minlength=len(p)) / 200_000


@pytest.mark.parametrize(
    ("rule", "p", "children", "q", "wrong"),
    [
        # accept top-1 token 0 with .6/.8, else draw from what is left
        ("min(1, p/q) on top-k", [0.6, 0.4], [0], [0.8], [0.75, 0.25]),
        ("rejected children left in", [0.5, 0.3, 0.2], [0], None, [0.75, 0.15, 0.10]),
        # rejection means coin >= .5, so the draw from (.6, .4) reads its upper half: .1 of 1 -> .2 - .4 = token 1
        ("one coin for both draws", [0.5, 0.3, 0.2], [0], None, [0.5, 0.1, 0.4]),
        ("siblings counted twice", [0.5, 0.3, 0.2], [0], None, [1.0, 0.0, 0.0]),
        ("siblings counted twice", [0.2, 0.3, 0.5], [0], None, [0.4, 0.225, 0.375]),
    ],
)
def test_control_is_wrong_by_the_right_amount(
    rule: str, p: list[float], children: list[int], q: list[float] | None, wrong: list[float]
) -> None:
    assert shares(rule, p, children, q) == pytest.approx(wrong, abs=0.006)
    assert shares("target-only", p, children, q) == pytest.approx(p, abs=0.006)


def test_draws_are_counted_where_the_exact_distribution_counts_them() -> None:
    tree, fixed = random_case(3)
    exact = exact_distributions(fixed)
    drawn = draw(TARGET_ONLY, fixed, *coins(5, 100_000, tree.width))
    assert np.bincount(drawn.accepted, minlength=len(exact.accepted)) / 1e5 == pytest.approx(exact.accepted, abs=0.008)
    assert ((drawn.child > 0) == (drawn.accepted > 0)).all()
    assert ((drawn.second >= 0) == (drawn.child > 0)).all()
    for child in fixed.children[0]:
        assert (drawn.first[drawn.child == child] == fixed.tokens[child]).all()
