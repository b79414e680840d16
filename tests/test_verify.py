"""The master property: the token after every node is distributed exactly as the target's row, whatever the tree."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from ddtree.backends.registry import tiny_case
from ddtree.retrieve import compile_retrieve
from ddtree.sampling import NonFiniteLogitsError, SamplingParams, target_probs
from ddtree.tree import DraftTree, build_tree
from ddtree.verify import (
    VerifyResult,
    backend_report,
    sample_tree,
    verify_tree,
    verify_tree_greedy,
)
from loops import for_each
from oracles import (
    distribution_by_cells,
    emitted,
    goodness_of_fit,
    random_trees,
    repeated,
    right_distribution,
    sixteenths,
)
from torch import Tensor
from wording import names

FORK = DraftTree.from_parents([[9, 3, 5, 2]], [[-1, 0, 0, 1]], [[0.0, -0.5, -1.0, -0.9]])
V = 10


def row(**probs: float) -> Tensor:
    """`row(t3=0.5)`: a row of V probabilities."""
    full = torch.zeros(V)
    for token, p in probs.items():
        full[int(token[1:])] = p
    return full


def fork_probs(root: Tensor) -> Tensor:
    probs = torch.full((1, 4, V), 0.1)
    probs[0, 0] = root
    probs[0, 1] = row(t2=0.6, t7=0.4)
    return probs


def verify_fork(root: Tensor, coins: list[float], final: float = 0.5) -> VerifyResult:
    coin_row, last = torch.tensor([coins]), torch.tensor([final])
    return verify_tree(FORK, compile_retrieve(FORK), fork_probs(root), coin_row, last)


def contents(result: VerifyResult) -> tuple[list[int], list[list[int]], list[int]]:
    return result.predict.tolist(), result.accept_index.tolist(), result.accept_count.tolist()


ROOT = row(t3=0.5, t5=0.3, t6=0.2)


@pytest.mark.parametrize(
    ("coins", "predict", "accepted"),
    [
        ([0.4, 0.5, 0.9, 0.9], [3, 2, -1, 5], [0, 1, 3]),
        ([0.7, 0.5, 0.3, 0.9], [5, -1, 5, -1], [0, 2, -1]),
        ([0.9, 0.5, 0.3, 0.9], [6, -1, -1, -1], [0, -1, -1]),
        ([0.4, 0.7, 0.3, 0.9], [3, 7, -1, -1], [0, 1, -1]),
    ],
)
def test_measured_cases(coins: list[float], predict: list[int], accepted: list[int]) -> None:
    result = verify_fork(ROOT, coins)
    assert contents(result) == (predict, [accepted], [sum(node > 0 for node in accepted)])
    assert {t.dtype for t in (result.predict, result.accept_index, result.accept_count)} == {torch.int32}


def test_child_of_probability_zero_is_passed_over_by_a_coin_of_zero() -> None:
    result = verify_fork(row(t0=0.5, t5=0.3, t6=0.2), [0.0, 0.5, 0.9, 0.9])
    assert contents(result) == ([5, -1, 5, -1], [[0, 2, -1]], [1])


@pytest.mark.parametrize("final", [0.0, 0.3, 0.7, 0.99999994])
def test_exhausted_rest_emits_a_token_that_is_possible(final: float) -> None:
    result = verify_fork(row(t3=0.6, t5=0.399999), [0.9999999, 0.5, 0.5, 0.5], final)
    assert result.accept_count.tolist() == [0]
    assert result.predict[0].item() == (3 if final < 0.6 else 5)


@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
def test_row_that_is_not_finite_raises(poison: float) -> None:
    with pytest.raises(ValueError, match=names("request 0 node 0")):
        verify_fork(row(t3=0.5, t5=poison), [0.5] * 4)
    logits = torch.zeros(1, 4, V)
    logits[0, 0, 8] = poison
    for temperature in (0.0, 1.0):
        with pytest.raises(NonFiniteLogitsError, match=names("request 0 node 0")):
            sample_tree(
                FORK,
                compile_retrieve(FORK),
                logits,
                SamplingParams(temperature),
                torch.full((1, 4), 0.5),
                torch.tensor([0.5]),
            )


# The distribution, exactly


@for_each("seed", range(40))
def test_distribution_of_random_trees_is_exact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    vocab = int(rng.integers(2, 6))
    tree = random_trees(rng, rows=1, most_nodes=7, vocab=vocab)
    rows = sixteenths(rng, tree.width, vocab)
    distribution = distribution_by_cells(tree, rows, verify_tree)
    assert distribution == right_distribution(tree, rows)
    after_root = [Fraction(0)] * vocab
    for (accepted, final), mass in distribution.items():
        after_root[(*accepted, final)[0]] += mass
    assert after_root == [Fraction(int(part), 16) for part in rows[0]]


@pytest.mark.parametrize(
    ("tokens", "parents", "rows"),
    [
        pytest.param([2, 0, 1, 2], [-1, 0, 0, 0], [[8, 5, 3]] + [[4, 4, 8]] * 3, id="children cover the support"),
        pytest.param([2, 0, 1], [-1, 0, 0], [[0, 0, 16]] + [[16, 0, 0]] * 2, id="every child impossible"),
        pytest.param([2, 1, 0], [-1, 0, 0], [[8, 0, 8]] + [[1, 0, 15]] * 2, id="first child impossible"),
        pytest.param([2], [-1], [[3, 4, 9]], id="leaf alone"),
        pytest.param([0, 1, 2, 0], [-1, 0, 1, 2], [[0, 16, 0], [0, 0, 16], [16, 0, 0], [1, 2, 13]], id="sure chain"),
    ],
)
def test_distribution_of_edge_cases_is_exact(tokens: list[int], parents: list[int], rows: list[list[int]]) -> None:
    tree = DraftTree.from_parents([tokens], [parents], [[-float(i) for i in range(len(tokens))]])
    sixteenth_rows = np.array(rows)
    assert distribution_by_cells(tree, sixteenth_rows, verify_tree) == right_distribution(tree, sixteenth_rows)


def test_one_coin_a_node_is_shared_by_all_paths_through_it() -> None:
    tree = DraftTree.from_parents([[3, 0, 1, 0, 1, 2]], [[-1, 0, 0, 1, 1, 1]], [[0.0, -1.0, -1.5, -2.0, -2.5, -3.0]])
    rows = np.array([[8, 8, 0, 0]] + [[4, 4, 4, 4]] * 5)
    distribution = distribution_by_cells(tree, rows, verify_tree)
    assert sum(mass for (accepted, _), mass in distribution.items() if accepted[:1] == (0,)) == Fraction(1, 2)


def test_draft_weights_do_not_matter_while_their_order_stays() -> None:
    rng = np.random.default_rng(2)
    tree = random_trees(rng, rows=64, most_nodes=9, vocab=6)
    other = DraftTree(tree.tokens, tree.parents, tree.depths, tree.node_logws * 7 - 1, tree.sizes, tree.max_depth)
    probs = target_probs(torch.tensor(rng.normal(size=(64, tree.width, 6))), temperature=0.8)
    coins, finals = (torch.tensor(rng.random(shape), dtype=torch.float32) for shape in ((64, tree.width), 64))
    results = [contents(verify_tree(t, compile_retrieve(t), probs, coins, finals)) for t in (tree, other)]
    assert results[0] == results[1]


def test_sibling_order_does_not_matter_to_the_distribution() -> None:
    rng = np.random.default_rng(4)
    rows = sixteenths(rng, 4, 4)
    tokens, parents = [[0, 1, 2, 3]], [[-1, 0, 0, 0]]
    distributions = []
    for weights in ([0.0, -1.0, -2.0, -3.0], [0.0, -3.0, -1.0, -2.0]):
        tree = DraftTree.from_parents(tokens, parents, [weights])
        distributions.append(distribution_by_cells(tree, rows, verify_tree))
    assert distributions[0] == distributions[1]


# The distribution, by draws: the test that rejects a biased rule is the test that ours passes


TARGET = np.array([0.35, 0.25, 0.2, 0.12, 0.08])
DRAFT = np.array([0.4, 0.3, 0.15, 0.1, 0.05])
DRAWS = 120_000


def biased_counts(rng: np.random.Generator) -> np.ndarray:
    """The ratio rule min(1, p/q) on children that were not drawn from q: its two likeliest, taken for certain."""
    target, draft = np.tile(TARGET, (DRAWS, 1)), np.tile(DRAFT, (DRAWS, 1))
    emitted_token = np.full(DRAWS, -1)
    for child in (0, 1):
        undecided = emitted_token < 0
        accepted = undecided & (rng.random(DRAWS) < target[:, child] / draft[:, child])
        emitted_token[accepted] = child
        rest = np.maximum(target - draft, 0)
        target = rest / rest.sum(axis=1, keepdims=True)
        draft[:, child] = 0
        draft /= draft.sum(axis=1, keepdims=True)
    undecided = emitted_token < 0
    emitted_token[undecided] = (rng.random(DRAWS)[:, None] > target.cumsum(axis=1)).sum(axis=1)[undecided].clip(max=4)
    return np.bincount(emitted_token, minlength=5)


def our_counts(rng: np.random.Generator) -> np.ndarray:
    one = build_tree(torch.tensor(DRAFT).log()[None, None], torch.tensor([0]), budget=2)
    tree = repeated(one, DRAWS)
    probs = torch.tensor(TARGET, dtype=torch.float32).expand(DRAWS, tree.width, -1)
    coins = torch.tensor(rng.random((DRAWS, tree.width), dtype=np.float32))
    finals = torch.tensor(rng.random(DRAWS, dtype=np.float32))
    result = verify_tree(tree, compile_retrieve(tree), probs, coins, finals)
    return np.bincount(result.predict.reshape(DRAWS, -1)[:, 0], minlength=5)


def test_draws_fit_the_target_and_the_biased_rule_is_caught() -> None:
    """Power: rejecting at 1e-6 needs a chi-square of 33.4 on 4 degrees of freedom. Moving 1 % of the mass from the
    rarest token to the likeliest gives a noncentrality of 184 at 120,000 draws and is missed less than once in a
    million; moving 0.5 % gives 46 and is caught in 89 % of runs. The ratio rule moves more than half of the mass.
    """
    rng = np.random.default_rng(20)
    assert goodness_of_fit(biased_counts(rng), TARGET) < 1e-6
    assert goodness_of_fit(our_counts(rng), TARGET) > 1e-3
    shifted = TARGET + np.array([0.01, 0, 0, 0, -0.01])
    assert goodness_of_fit(rng.multinomial(DRAWS, shifted), TARGET) < 1e-6


# Greedy


@for_each("seed", range(10))
def test_temperature_zero_is_the_greedy_walk(seed: int) -> None:
    rng = np.random.default_rng(seed)
    bs, vocab = 24, 4
    tree = random_trees(rng, bs, most_nodes=12, vocab=vocab, spare=1)
    tables = compile_retrieve(tree)
    logits = torch.tensor(rng.normal(size=(bs, tree.width, vocab)), dtype=torch.float32)
    coins, finals = (torch.tensor(rng.random(shape), dtype=torch.float32) for shape in ((bs, tree.width), bs))
    greedy = verify_tree_greedy(tree, tables, logits.argmax(dim=-1))
    assert int(greedy.accept_count.max()) >= 2, "some walk must go deep for this to mean anything"
    assert contents(sample_tree(tree, tables, logits, SamplingParams(0.0), coins, finals)) == contents(greedy)

    mixed = [SamplingParams(0.0 if b % 2 else 1.0) for b in range(bs)]
    hot = emitted(sample_tree(tree, tables, logits, SamplingParams(1.0), coins, finals), tree.width)
    cold = emitted(greedy, tree.width)
    found = emitted(sample_tree(tree, tables, logits, mixed, coins, finals), tree.width)
    assert found == [cold[b] if b % 2 else hot[b] for b in range(bs)]


def test_chain_tree_is_the_linear_chain() -> None:
    rng = np.random.default_rng(8)
    bs, depth, vocab = 50, 5, 3
    draft_logits = torch.tensor(rng.normal(size=(bs, depth, vocab)))
    tree = build_tree(draft_logits, torch.zeros(bs, dtype=torch.int64), budget=depth, topk_cap=1)
    drafts = draft_logits.argmax(dim=-1)
    assert torch.equal(tree.tokens[:, 1:], drafts)
    assert tree.parents.tolist() == [list(range(-1, depth))] * bs
    argmax = torch.tensor(rng.integers(vocab, size=(bs, depth + 1)))
    result = verify_tree_greedy(tree, compile_retrieve(tree), argmax)
    agreed = (drafts == argmax[:, :depth]).long().cumprod(dim=1).sum(dim=1)
    assert result.accept_count.tolist() == agreed.tolist()
    assert set(agreed.tolist()) >= {0, 1, 2}
    assert emitted(result, depth + 1) == [tuple(argmax[b, : agreed[b] + 1].tolist()) for b in range(bs)]


def test_row_of_a_node_decides_on_its_children() -> None:
    tree = DraftTree.from_parents([[5, 1]], [[-1, 0]], [[0.0, -0.1]])
    result = verify_tree_greedy(tree, compile_retrieve(tree), torch.tensor([[9, 1]]))
    assert contents(result) == ([9, -1], [[0, -1]], [0])


def test_accept_index_is_as_wide_as_the_deepest_path() -> None:
    chain = DraftTree.from_parents([[0, 1, 2, 3]], [[-1, 0, 1, 2]], [[0.0, -1.0, -2.0, -3.0]])
    rows = torch.eye(5)[[1, 2, 3, 4]][None]
    result = verify_tree(chain, compile_retrieve(chain), rows, torch.full((1, 4), 0.9), torch.tensor([0.9]))
    assert contents(result) == ([1, 2, 3, 4], [[0, 1, 2, 3]], [3])


# Sampling from logits


def test_sample_tree_is_verify_tree_of_target_probs() -> None:
    rng = np.random.default_rng(6)
    bs, vocab = 40, 7
    tree = random_trees(rng, bs, most_nodes=10, vocab=vocab)
    tables = compile_retrieve(tree)
    logits = torch.tensor(rng.normal(size=(bs, tree.width, vocab)) * 2, dtype=torch.float32)
    coins, finals = (torch.tensor(rng.random(shape), dtype=torch.float32) for shape in ((bs, tree.width), bs))
    choices = [(0.7, 3, 1.0, 0.0), (0.0, 0, 1.0, 0.0), (1.3, 0, 0.6, 0.0), (1.0, 5, 0.9, 0.2)]
    sampling = [SamplingParams(*choices[b % 4]) for b in range(bs)]
    probs = target_probs(
        logits,
        temperature=[p.temperature for p in sampling],
        top_k=[p.top_k for p in sampling],
        top_p=[p.top_p for p in sampling],
        min_p=[p.min_p for p in sampling],
    )
    expected = verify_tree(tree, tables, probs, coins, finals)
    assert contents(sample_tree(tree, tables, logits, sampling, coins, finals)) == contents(expected)


def test_filtered_token_is_never_accepted_or_emitted() -> None:
    """A child outside the filters, at every coin: the rest keeps its renormalised shares."""
    coins = (torch.arange(3000) + 0.5) / 3000
    tree = repeated(DraftTree.from_parents([[0, 3]], [[-1, 0]], [[0.0, -0.1]]), len(coins))
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log().expand(len(coins), 2, 4)
    result = sample_tree(
        tree, compile_retrieve(tree), logits, SamplingParams(min_p=0.2), coins[:, None].repeat(1, 2), coins
    )
    assert result.accept_count.sum() == 0
    shares = np.bincount(result.predict.reshape(-1, 2)[:, 0], minlength=4) / len(coins)
    np.testing.assert_allclose(shares, [0.5263, 0.3158, 0.1579, 0], atol=5e-4)
    assert shares[3] == 0


# What is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"coins": torch.full((1, 4), 1.0)}, "coins"),
        ({"coins": torch.full((1, 4), -0.1)}, "coins"),
        ({"coins": torch.full((1, 4), torch.nan)}, "coins"),
        ({"final_coins": torch.tensor([1.0])}, "final_coins"),
        ({"final_coins": torch.tensor([0.5], dtype=torch.float64)}, "final_coins torch.float64"),
        ({"coins": torch.full((1, 3), 0.5)}, "coins [1, 3]"),
        ({"probs": torch.full((1, 3, V), 0.1)}, "[1, 4, V]"),
        ({"probs": torch.full((1, 4, V), 0.1).double()}, "float64"),
        ({"probs": torch.full((1, 4, 9), 0.1)}, "node 0 token 9 9"),
        ({"probs": torch.zeros(1, 4, V)}, "probs 0 0 0"),
        ({"backend": "cuda"}, "backend cuda"),
    ],
)
def test_argument_out_of_range_is_named(change: dict, message: str) -> None:
    arguments = {
        "probs": fork_probs(ROOT),
        "coins": torch.full((1, 4), 0.5),
        "final_coins": torch.tensor([0.5]),
        "backend": "reference",
    }
    with pytest.raises(ValueError, match=names(message)):
        verify_tree(FORK, compile_retrieve(FORK), **{**arguments, **change})


def test_tables_of_another_tree_are_refused() -> None:
    other = compile_retrieve(DraftTree.from_parents([[1]], [[-1]], [[0.0]]))
    with pytest.raises(ValueError, match=names("tables [1, 1]")):
        verify_tree(FORK, other, fork_probs(ROOT), torch.full((1, 4), 0.5), torch.tensor([0.5]))


def test_sampling_needs_one_entry_a_request() -> None:
    coins = torch.full((1, 4), 0.5)
    with pytest.raises(ValueError, match=names("sampling 2 1")):
        sample_tree(
            FORK, compile_retrieve(FORK), torch.zeros(1, 4, V), [SamplingParams()] * 2, coins, torch.tensor([0.5])
        )


def test_greedy_walk_refuses_an_argmax_of_another_shape() -> None:
    with pytest.raises(ValueError, match=names("argmax [1, 3]")):
        verify_tree_greedy(FORK, compile_retrieve(FORK), torch.zeros(1, 3, dtype=torch.int64))


def test_empty_batch_gives_an_empty_result() -> None:
    tree = build_tree(torch.zeros(0, 2, V), torch.zeros(0, dtype=torch.int64), budget=3)
    result = verify_tree(tree, compile_retrieve(tree), torch.zeros(0, 4, V), torch.zeros(0, 4), torch.zeros(0))
    assert contents(result) == ([], [], [])


def test_auto_takes_the_reference_on_a_cpu_and_says_why() -> None:
    report = {status.name: status for status in backend_report("cpu")}
    assert report["reference"].usable
    assert not report["sgl"].usable
    assert "CUDA" in report["sgl"].reason
    assert all(status.reason for status in report.values())


def test_trial_case_tells_three_outcomes_apart() -> None:
    tree, probs, coins, finals = tiny_case()
    result = verify_tree(tree, compile_retrieve(tree), probs, coins, finals, backend="reference")
    assert emitted(result, 4) == [(3, 2, 5), (5, 5), (6,)]


def test_rows_of_padding_are_not_looked_at() -> None:
    tree = DraftTree.from_parents([[2, 1]], [[-1, 0]], [[0.0, -0.5]], width=4)
    probs = torch.full((1, 4, 3), torch.nan)
    probs[0, :2] = torch.tensor([0.2, 0.5, 0.3])
    result = verify_tree(tree, compile_retrieve(tree), probs, torch.full((1, 4), 0.4), torch.tensor([0.9]))
    assert result.accept_index.tolist() == [[0, 1]]
    assert result.predict.tolist() == [1, 2, -1, -1]
