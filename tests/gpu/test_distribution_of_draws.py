"""A million draws of each backend against the exact distribution, with negative controls that the same test rejects.

Power: with 10^6 draws a departure of 1 % of the mass, in whatever direction, is found with a chance of 99 % at level
1 %; the test prints each distribution's own figure and fails where it is larger.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from ddtree.backends import fused, sgl
from ddtree.retrieve import compile_retrieve
from ddtree.sampling import SamplingParams
from ddtree.tree import DraftTree
from ddtree.verify import sample_tree
from ddtree.workbook.exactness.goodness_of_fit import smallest_departure
from oracles import filtered64, goodness_of_fit, repeated
from torch import Tensor

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

DEVICE = "cuda"
VOCAB = 400
BATCH, ROUNDS = 4096, 250  # rows [BATCH, 5, VOCAB] of float32 are 33 MB a call
FITS, FAILS = 1e-4, 1e-6  # p-values
TREE = DraftTree.from_parents([[0, 3, 5, 2, 7]], [[-1, 0, 0, 1, 1]], [[0.0, -0.5, -1.0, -0.9, -1.2]])
SAMPLINGS = (SamplingParams(0.9), SamplingParams(1.2, 0, 0.9), SamplingParams(0.8, 12, 0.95))
Recorder = Callable[[str, object], None]


@dataclass(frozen=True)
class Counts:
    """How often each token came first, and second behind the accepted child 3."""

    first: np.ndarray  # [VOCAB]
    second: np.ndarray  # [VOCAB]


@pytest.fixture(params=["fused", "sgl"])
def backend(request: pytest.FixtureRequest) -> str:
    reason = (fused if request.param == "fused" else sgl).missing(DEVICE)
    if reason is not None:
        pytest.skip(reason)
    return request.param


def logits() -> Tensor:
    """[1, 5, VOCAB]: the children of every node together hold about half of its row."""
    rows = np.random.default_rng(13).normal(size=(1, TREE.width, VOCAB)) * 2
    rows[:, :, [2, 3, 5, 7]] += 5
    rows[:, 0, 3] += 4
    return torch.tensor(rows, dtype=torch.float32, device=DEVICE)


def drawn(backend: str, sampling: SamplingParams, rounds: int, *, one_coin: bool = False) -> Counts:
    """BATCH draws a round; with `one_coin` the last draw reads the root's coin again, which is wrong."""
    tree = repeated(TREE, BATCH).to(DEVICE)
    tables, rows = compile_retrieve(tree), logits().expand(BATCH, -1, -1)
    generator = torch.Generator(DEVICE).manual_seed(13)
    first = torch.zeros(VOCAB, dtype=torch.int64, device=DEVICE)
    second = torch.zeros_like(first)
    for _ in range(rounds):
        coins = torch.rand(BATCH, TREE.width, device=DEVICE, generator=generator)
        finals = coins[:, 0].contiguous() if one_coin else torch.rand(BATCH, device=DEVICE, generator=generator)
        result = sample_tree(tree, tables, rows, sampling, coins, finals, backend=backend)
        after = result.predict.reshape(BATCH, TREE.width).long()
        first += torch.bincount(after[:, 0], minlength=VOCAB)
        behind = after[:, 1][(result.accept_count > 0) & (after[:, 0] == 3)]
        second += torch.bincount(behind, minlength=VOCAB)
    return Counts(first.cpu().numpy(), second.cpu().numpy())


def distribution(node: int, sampling: SamplingParams) -> np.ndarray:
    row = logits()[0, node].tolist()
    return filtered64(row, sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p).probs


def with_mass_moved(probs: np.ndarray, share: float) -> np.ndarray:
    """`share` of all mass taken from the likeliest token and given to the next."""
    best, next_best = np.argsort(-probs)[:2]
    moved = probs.copy()
    moved[best] -= share
    moved[next_best] += share
    return moved


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_a_million_draws_fit_the_target(backend: str, sampling: SamplingParams, record_property: Recorder) -> None:
    counts = drawn(backend, sampling, ROUNDS)
    assert counts.first.sum() >= 10**6
    for place, node, seen in (("first", 0, counts.first), ("second", 1, counts.second)):
        right = distribution(node, sampling)
        assert seen.sum() > 100_000
        p, found = goodness_of_fit(seen, right), smallest_departure([(float(seen.sum()), right[right > 0])])
        line = f"{place} token, {seen.sum():,} draws: p = {p:.2g}; finds departures of {found:.2%} of the mass"
        record_property(f"{place} token", line)
        print(f"{backend}, {sampling}: {line}")
        assert found <= 0.01, line
        assert p > FITS, line
        assert goodness_of_fit(seen, with_mass_moved(right, 0.01)) < FAILS, (
            "a distribution that is 1 % off must be rejected"
        )


def test_filters_left_out_are_rejected(backend: str) -> None:
    filtered = SAMPLINGS[2]
    counts = drawn(backend, SamplingParams(filtered.temperature), 30)
    assert goodness_of_fit(counts.first, distribution(0, filtered)) < FAILS
    assert goodness_of_fit(counts.first, distribution(0, SamplingParams(filtered.temperature))) > FITS


def test_a_temperature_that_is_a_little_off_is_rejected(backend: str) -> None:
    counts = drawn(backend, SamplingParams(0.93), 30)
    assert goodness_of_fit(counts.first, distribution(0, SamplingParams(0.9))) < FAILS


def test_one_coin_for_both_draws_is_rejected(backend: str) -> None:
    counts = drawn(backend, SAMPLINGS[0], 30, one_coin=True)
    assert goodness_of_fit(counts.first, distribution(0, SAMPLINGS[0])) < FAILS
