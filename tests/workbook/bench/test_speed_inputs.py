"""Inputs are what they say: Zipf's slope, another permutation in every row, drafts that are often accepted."""

import numpy as np
import pytest
import torch
from ddtree.sampling import SamplingParams
from ddtree.verify import sample_tree
from ddtree.workbook.bench.inputs import (
    EXPONENT,
    NOISE,
    Sizes,
    make_input_sets,
    make_inputs,
    mean_rows_visited,
    zipf_logits,
)

SIZES = Sizes(vocab=3000, batch=8, budget=24, depth=6, topk_cap=8)
CPU = torch.device("cpu")


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_logits_fall_with_the_logarithm_of_their_rank() -> None:
    logits = zipf_logits((2, 3, 20_000), generator=generator(1))
    assert logits.shape == (2, 3, 20_000)
    ranked = logits.reshape(6, -1).sort(dim=1, descending=True).values.mean(dim=0).double().numpy()
    ranks = np.arange(1, 20_001)
    middle = slice(20, 5000)  # noise lifts the head, and the last ranks have nobody to fall behind
    slope, _ = np.polyfit(np.log(ranks[middle]), ranked[middle], 1)
    assert slope == pytest.approx(-EXPONENT, rel=0.05)


def test_noise_is_what_is_left_of_a_row() -> None:
    logits = zipf_logits((1, 50_000), generator=generator(2))[0].double()
    curve = -EXPONENT * torch.arange(1, 50_001).double().log()
    # Variance of a sum: that of the curve, and that of the noise, which does not depend on the rank.
    assert float(logits.var() - curve.var()) == pytest.approx(NOISE**2, rel=0.15)


@pytest.mark.parametrize("vocab", [2, 7, 128, 1000])
def test_each_row_is_permuted_anew(vocab: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddtree.workbook.bench.inputs.NOISE", 0.0)
    logits = zipf_logits((40, vocab), generator=generator(3))
    curve = -EXPONENT * torch.arange(1, vocab + 1).float().log()
    assert torch.equal(logits.sort(dim=1, descending=True).values, curve.expand(40, -1))
    assert len({tuple(row) for row in logits.argsort(dim=1).tolist()}) > min(vocab, 20) // 2


def test_drafts_are_often_accepted_and_not_always() -> None:
    sets = [make_inputs(SIZES, seed=seed, device=CPU, dtype=torch.float32) for seed in range(4)]
    mean = mean_rows_visited(sets, SamplingParams(0.6)) / SIZES.batch - 1
    assert 0.5 < mean < SIZES.depth - 0.5


def test_rows_visited_count_accepted_nodes_and_the_root_over_the_batch() -> None:
    inputs = make_inputs(SIZES, seed=0, device=CPU, dtype=torch.float32)
    sampling = SamplingParams(1.0, top_k=5)
    result = sample_tree(inputs.tree, inputs.tables, inputs.logits, sampling, inputs.coins, inputs.final_coins)
    assert mean_rows_visited([inputs, inputs], sampling) == int(result.accept_count.sum()) + SIZES.batch


def test_input_sets_differ_and_together_outgrow_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    each = SIZES.batch * SIZES.depth * SIZES.vocab * 2
    for wanted, expected in ((1, 2), (5 * each, 5), (5 * each + 1, 6), (10**12, 16)):
        monkeypatch.setattr("ddtree.workbook.bench.inputs.ROTATED_BYTES", {"cpu": wanted})
        monkeypatch.setattr("ddtree.workbook.bench.inputs.make_inputs", lambda sizes, **options: options["seed"])
        seeds = make_input_sets(SIZES, seed=4, device=CPU, dtype=torch.bfloat16)
        assert len(set(seeds)) == len(seeds) == expected


def test_inputs_have_the_shapes_of_a_round() -> None:
    inputs = make_inputs(SIZES, seed=0, device=CPU, dtype=torch.bfloat16)
    assert inputs.draft_logits.shape == (8, 6, 3000)
    assert inputs.logits.shape == (8, 25, 3000)
    assert inputs.logits.dtype == inputs.draft_logits.dtype == torch.bfloat16
    assert inputs.tree.sizes.tolist() == [25] * 8
