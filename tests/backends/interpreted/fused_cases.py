"""The fused kernel in Triton's interpreter gives the reference's tokens; run by test_fused.py in a process of its own.

Sizes are small, so that rows of a few hundred tokens have several tiles, many chunks and too many candidates.
"""

import numpy as np
import pytest
import torch
import triton_on_cpu  # noqa: F401
from ddtree.backends import fused, reference
from ddtree.backends.registry import resolve
from ddtree.retrieve import compile_retrieve
from ddtree.sampling import NonFiniteLogitsError, SamplingParams
from ddtree.tree import DraftTree, build_tree
from ddtree.verify import VerifyResult, backend_report, sample_tree, verify_tree
from loops import for_each
from oracles import emitted, random_trees
from tie_cases import TIE_CASES, TieCase
from torch import Tensor
from wording import names

SMALL = fused.Sizes(
    lanes=16,
    lane_tokens=8,
    gather_block=16,
    chunk=16,
    rows=8,
    max_candidates=32,
    topp_candidates=8,
    block=16,
    step=8,
    warps=4,
)
FORK = DraftTree.from_parents([[9, 3, 5, 2]], [[-1, 0, 0, 1]], [[0.0, -0.5, -1.0, -0.9]])
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
NEGATIVE_NAN = torch.tensor([-4194304], dtype=torch.int32).view(torch.float32).item()


def run(tree: DraftTree, logits: Tensor, requests: list[SamplingParams], coins: Tensor, finals: Tensor) -> list[Tensor]:
    sampling = fused.SamplingTensors.from_requests(requests, "cpu")
    return list(fused.sample(tree, compile_retrieve(tree), logits, sampling, coins, finals, sizes=SMALL))


def both(tree: DraftTree, logits: Tensor, requests: list[SamplingParams], coins: Tensor, finals: Tensor) -> list[list]:
    """The kernel's answer, once the reference's is found to be the same."""
    right = reference.sample(tree, compile_retrieve(tree), logits, requests, coins, finals)
    *found, status = run(tree, logits, requests, coins, finals)
    assert status.tolist() == [0] * tree.batch_size
    assert [part.tolist() for part in found] == [part.tolist() for part in right]
    assert [part.dtype for part in found] == [torch.int32] * 3
    return [part.tolist() for part in found]


def random_case(seed: int, bs: int, vocab: int, drafted: int) -> tuple[DraftTree, Tensor, Tensor, Tensor]:
    """Trees whose tokens are the likelier ones, so that walks go deep."""
    rng = np.random.default_rng(seed)
    tree = random_trees(rng, bs, most_nodes=10, vocab=drafted, spare=1)
    logits = torch.tensor(rng.normal(size=(bs, tree.width, vocab)) * 2, dtype=torch.float32)
    logits[..., :drafted] += 6
    coins, finals = (torch.tensor(rng.random(shape), dtype=torch.float32) for shape in ((bs, tree.width), bs))
    return tree, logits, coins, finals


def drawn(logits: Tensor, sampling: SamplingParams, coins: list[float]) -> list[int]:
    """The root alone on one row, drawn with each coin."""
    bs = len(coins)
    tree = DraftTree.from_parents([[0]] * bs, [[-1]] * bs, [[0.0]] * bs)
    rows = logits.expand(bs, 1, -1)
    return both(tree, rows, [sampling] * bs, torch.full((bs, 1), 0.5), torch.tensor(coins))[0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_few_candidates_decide(dtype: torch.dtype) -> None:
    requests = [
        SamplingParams(0.6, 5, 0.95),
        SamplingParams(1.0, 12),
        SamplingParams(0.0),
        SamplingParams(0.7, 0, 0.8),
        SamplingParams(1.0),
        SamplingParams(0.8, 18, 0.95, 0.02),
    ] * 2
    tree, logits, coins, finals = random_case(1, 12, 300, 4)
    assert max(both(tree, logits.to(dtype), requests, coins, finals)[2]) >= 2


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_filters_that_keep_too_many_for_candidates(dtype: torch.dtype) -> None:
    requests = [
        SamplingParams(1.5, 60, 0.9),
        SamplingParams(3.0, 0, 0.9),
        SamplingParams(1.0, 0, 1.0, 0.1),
        SamplingParams(1.3, 100, 0.7, 0.05),
        SamplingParams(2.0, 40),
    ]
    tree, logits, coins, finals = random_case(2, 5, 300, 12)
    both(tree, logits.to(dtype), requests, coins, finals)


@for_each("seed", range(2))
def test_from_probabilities_coins_on_the_running_sums_agree(seed: int) -> None:
    """Rows and coins in eighths: most coins are ties, zero included, and sums are exact."""
    rng = np.random.default_rng(seed)
    tree = random_trees(rng, 30, most_nodes=8, vocab=4)
    probs = torch.tensor(rng.multinomial(8, [0.25] * 4, size=(30, tree.width)) / 8).float()
    coins, finals = (torch.tensor(rng.integers(8, size=shape) / 8).float() for shape in ((30, tree.width), 30))
    right = reference.verify(tree, compile_retrieve(tree), probs, coins, finals)
    found = fused.verify(tree, compile_retrieve(tree), probs, coins, finals, sizes=SMALL)
    assert [part.tolist() for part in found] == [part.tolist() for part in right]


@pytest.mark.parametrize(
    ("root", "coin"),
    [({0: 0.5, 5: 0.3, 6: 0.2}, 0.0), ({3: 0.6, 5: 0.399999}, 0.9999999), ({3: 0.6, 9: 0.4}, 0.3), ({3: 1.0}, 0.99)],
    ids=["coin 0, first child impossible", "children cover the row", "accepted", "sure"],
)
@pytest.mark.parametrize("final", [0.0, 0.31, 0.99999994])
def test_edges_of_the_rule(root: dict[int, float], coin: float, final: float) -> None:
    probs = torch.full((1, 4, 10), 0.1)
    probs[0, 0] = torch.tensor([root.get(token, 0.0) for token in range(10)])
    coins, finals = torch.tensor([[coin, 0.55, 0.55, 0.55]]), torch.tensor([final])
    tables = compile_retrieve(FORK)
    right = verify_tree(FORK, tables, probs, coins, finals, backend="reference")
    found = verify_tree(FORK, tables, probs, coins, finals, backend="fused")
    assert emitted(found, 4) == emitted(right, 4)
    for sampling in (SamplingParams(), SamplingParams(top_k=5), SamplingParams(top_p=0.99), SamplingParams(min_p=0.01)):
        tokens = emitted(VerifyResult(*run(FORK, probs.log(), [sampling], coins, finals)[:3]), 4)
        assert tokens[0][0] in root


@pytest.mark.parametrize("case", TIE_CASES, ids=lambda case: case.name)
def test_tie_cases(case: TieCase) -> None:
    case.check(VerifyResult(*fused.verify(*case.arguments(), sizes=SMALL)))


def test_ties_at_rank_k_go_to_the_lower_ids() -> None:
    coins = [0.0, 0.31, 0.72, 0.99999994]
    equal = torch.zeros(90)
    assert drawn(equal, SamplingParams(top_k=3), coins) == [0, 0, 2, 2]  # more equals than candidates
    assert drawn(equal, SamplingParams(top_k=40), coins) == [0, 12, 28, 39]  # more than chunks
    raised = torch.zeros(90)
    raised[[7, 50, 81]] = 2.0
    assert drawn(raised, SamplingParams(top_k=2), coins) == [7, 7, 50, 50]


def test_ties_at_top_p_go_to_the_lower_ids() -> None:
    coins = [0.0, 0.31, 0.72, 0.99999994]
    assert drawn(torch.zeros(96), SamplingParams(top_p=0.5 - 1e-3), coins) == [0, 14, 34, 47]
    assert drawn(torch.zeros(24), SamplingParams(top_p=0.5 - 1e-3), coins) == [0, 3, 8, 11]


def test_zero_of_either_sign_is_one_value() -> None:
    logits = torch.zeros(40)
    logits[:4] = -0.0
    assert drawn(logits, SamplingParams(top_k=2), [0.0, 0.99]) == [0, 1]
    assert drawn(logits, SamplingParams(0.0), [0.5]) == [0]


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(top_k=50),
        SamplingParams(top_k=1000),
        SamplingParams(top_p=1.0),
        SamplingParams(min_p=1.0),
        SamplingParams(top_k=1),
        SamplingParams(top_p=1e-6),
        SamplingParams(temperature=1e-5),
        SamplingParams(temperature=9e-6),
    ],
    ids=str,
)
def test_filters_at_the_ends_of_their_range(sampling: SamplingParams) -> None:
    logits = torch.tensor(np.random.default_rng(3).normal(size=50), dtype=torch.float32)
    assert len(drawn(logits, sampling, [0.0, 0.4, 0.8])) == 3


@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams(top_k=2), SamplingParams(top_k=30, top_p=0.9)])
def test_masked_tokens_are_never_drawn(sampling: SamplingParams) -> None:
    logits = torch.full((70,), -torch.inf)
    logits[[5, 20, 69]] = torch.tensor([1.0, 0.5, 0.0])
    assert set(drawn(logits, sampling, [0.0, 0.5, 0.99999994])) <= {5, 20, 69}


@pytest.mark.parametrize("offset", [-200.0, 0.0, 200.0])
@pytest.mark.parametrize("vocab", [300, 257])
def test_sums_over_tiles_that_rise_fall_and_hold_nothing(offset: float, vocab: int) -> None:
    """A strand's sum is taken relative to its largest logit so far, which each tile may raise."""
    logits = torch.tensor(np.random.default_rng(8).normal(size=vocab), dtype=torch.float32) + offset
    logits[:140] = -torch.inf
    logits[::16] = -torch.inf  # one strand's tokens, and more
    logits[150:160] += 30
    logits[200:] += 35
    coins = [0.0, 0.13, 0.37, 0.61, 0.83, 0.99]
    assert len(set(drawn(logits, SamplingParams(0.9), coins))) >= 4
    drawn(logits, SamplingParams(0.9, 0, 0.9), coins)
    drawn(logits, SamplingParams(0.9, 0, 1.0, 0.01), coins)


@pytest.mark.parametrize("poison", [torch.nan, NEGATIVE_NAN, torch.inf, None], ids=["NaN", "-NaN", "+inf", "all -inf"])
def test_row_that_is_no_distribution_is_named_if_visited(poison: float | None) -> None:
    logits = torch.zeros(3, 4, 40)
    logits[:, 0, 3] = 50.0
    for row, node in ((0, 0), (1, 1), (2, 2)):
        if poison is None:
            logits[row, node] = -torch.inf
        else:
            logits[row, node, 33] = poison
    tree = DraftTree.from_parents([[9, 3, 5, 2]] * 3, [[-1, 0, 0, 1]] * 3, [[0.0, -0.5, -1.0, -0.9]] * 3)
    coins, finals = torch.full((3, 4), 0.5), torch.full((3,), 0.5)
    for sampling in (SamplingParams(0.0), SamplingParams(), SamplingParams(top_k=2)):
        predict, index, count, status = run(tree, logits, [sampling] * 3, coins, finals)
        assert status.tolist() == [1, 2, 0], "node 2 is not visited"
        assert count.tolist()[:2] == [0, 1]
        assert predict.reshape(3, 4)[0].tolist() == [-1] * 4
        assert index[1].tolist() == [4, 5, -1]
    with pytest.raises(NonFiniteLogitsError, match=names("request 0 node 0")):
        sample_tree(tree, compile_retrieve(tree), logits, SamplingParams(), coins, finals, backend="fused")


def test_status_is_written_where_the_caller_reads_it() -> None:
    tree, logits, coins, finals = random_case(1, 3, 60, 4)
    logits[1, 0, 7] = torch.nan
    status = torch.full((3,), 9, dtype=torch.int32)
    sampling = fused.SamplingTensors.from_requests([SamplingParams(top_k=5)] * 3, "cpu")
    found = fused.sample(tree, compile_retrieve(tree), logits, sampling, coins, finals, status=status, sizes=SMALL)
    assert found[3] is status
    assert status.tolist() == [0, 1, 0]


def test_budget_zero_and_an_empty_batch() -> None:
    tree = build_tree(torch.zeros(2, 3, 40), torch.tensor([1, 2]), budget=0)
    logits = torch.tensor(np.random.default_rng(4).normal(size=(2, 1, 40)), dtype=torch.float32)
    both(tree, logits, [SamplingParams(top_k=3), SamplingParams()], torch.full((2, 1), 0.5), torch.tensor([0.2, 0.9]))
    none = build_tree(torch.zeros(0, 2, 4), torch.zeros(0, dtype=torch.int64), budget=3)
    assert [part.tolist() for part in run(none, torch.zeros(0, 4, 4), [], torch.zeros(0, 4), torch.zeros(0))] == [
        []
    ] * 4


def test_strided_arguments_are_read_as_they_are_and_left_so() -> None:
    tree, logits, coins, finals = random_case(5, 4, 60, 6)
    requests = [SamplingParams(top_k=4), SamplingParams(), SamplingParams(0.0), SamplingParams(0.7, 3, 0.9)]
    right = both(tree, logits, requests, coins, finals)
    nodes_first = logits.transpose(0, 1).contiguous().transpose(0, 1)
    thin = torch.empty(*logits.shape[:2], 120)[..., ::2].copy_(logits)
    for strided in (nodes_first, thin):
        assert not strided.is_contiguous()
        kept = strided.clone()
        assert both(tree, strided, requests, coins.T.contiguous().T, finals) == right
        assert torch.equal(strided, kept)


def test_token_outside_the_vocabulary_has_no_probability() -> None:
    tree = DraftTree.from_parents([[0, 99]], [[-1, 0]], [[0.0, -0.1]])
    predict, _, count, status = run(tree, torch.zeros(1, 2, 20), [SamplingParams()], torch.zeros(1, 2), torch.zeros(1))
    assert (predict.tolist(), count.tolist(), status.tolist()) == ([0, -1], [0], [0])


def test_it_proved_itself_and_auto_leaves_the_interpreter_alone() -> None:
    status = next(status for status in backend_report("cpu") if status.name == "fused")
    assert status.usable, status.reason
    assert resolve("auto", torch.device("cpu")) == "reference"


def test_sample_tree_takes_double_precision_too() -> None:
    tree, logits, coins, finals = random_case(6, 3, 40, 6)
    tables, sampling = compile_retrieve(tree), SamplingParams(0.8, 5, 0.9)
    right = sample_tree(tree, tables, logits, sampling, coins, finals, backend="reference")
    found = sample_tree(tree, tables, logits.double(), sampling, coins, finals, backend="fused")
    assert emitted(found, tree.width) == emitted(right, tree.width)
