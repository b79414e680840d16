"""Bootstrap against closed forms: values exact, intervals that cover as often as they claim, pairing that cancels."""

import numpy as np
import pytest
from ddtree.workbook.stats import ratio_of_ratios, ratio_of_sums, resampled_prompts


def test_weights_draw_as_many_prompts_as_there_are() -> None:
    weights = resampled_prompts(7, 500, seed=3)
    assert weights.shape == (500, 7)
    assert (weights >= 0).all()
    assert (weights.sum(axis=1) == 7).all()
    # Each count is binomial(7, 1/7): mean 1, variance 6/7.
    assert weights.mean(axis=0) == pytest.approx([1] * 7, abs=0.2)
    assert weights.var() == pytest.approx(6 / 7, abs=0.1)


def test_weights_follow_the_seed() -> None:
    assert (resampled_prompts(7, 50, seed=3) == resampled_prompts(7, 50, seed=3)).all()
    assert (resampled_prompts(7, 50, seed=3) != resampled_prompts(7, 50, seed=4)).any()


def test_ratio_of_sums_by_hand() -> None:
    """Draws 2, 10/4 and 4 at the percentiles 0, 50 and 100: 2.5 % lies a twentieth of the way to the next."""
    found = ratio_of_sums([6, 4], [3, 1], np.array([[1, 1], [0, 2], [2, 0]]))
    assert found.value == 2.5
    assert found.low == pytest.approx(2 + 0.05 * (2.5 - 2))
    assert found.high == pytest.approx(4 - 0.05 * (4 - 2.5))


def test_value_is_a_ratio_of_sums_not_a_mean_of_ratios() -> None:
    assert ratio_of_sums([10, 1], [1, 1000], resampled_prompts(2, 100, seed=0)).value == 11 / 1001


def test_one_prompt_has_no_width() -> None:
    found = ratio_of_sums([12], [5], resampled_prompts(1, 100, seed=0))
    assert (found.value, found.low, found.high) == (2.4, 2.4, 2.4)


def test_interval_of_a_mean_is_that_of_the_textbook() -> None:
    """With denominators of 1 the ratio is a mean, whose bootstrap spread is s / sqrt(n)."""
    values = np.random.default_rng(1).normal(10, 2, size=400)
    found = ratio_of_sums(values, np.ones(400), resampled_prompts(400, 4000, seed=2))
    half = 1.96 * values.std() / np.sqrt(400)
    assert found.value == pytest.approx(values.mean())
    assert (found.high - found.value) / half == pytest.approx(1, abs=0.06)
    assert (found.value - found.low) / half == pytest.approx(1, abs=0.06)


def test_interval_covers_the_truth_in_95_of_100_runs() -> None:
    """Prompts differ in length and in acceptance; rounds of one prompt share its acceptance."""
    truth, runs, prompts = 2.5, 800, 50
    stream = np.random.default_rng(0)
    covered = 0
    for run in range(runs):
        rounds = stream.integers(5, 40, size=prompts)
        tokens = rounds * stream.normal(truth, 0.6, size=prompts)
        found = ratio_of_sums(tokens, rounds, resampled_prompts(prompts, 400, seed=run))
        covered += found.low <= truth <= found.high
    assert 0.925 <= covered / runs <= 0.97  # three standard errors are 0.023; the percentile bootstrap is a bit narrow


def test_speedup_of_identical_data_is_exactly_one() -> None:
    stream = np.random.default_rng(0)
    tokens, seconds = stream.integers(10, 64, size=9), stream.uniform(0.3, 3, size=9)
    found = ratio_of_ratios(tokens, seconds, tokens, seconds, resampled_prompts(9, 1000, seed=0))
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)


def test_speedup_by_hand() -> None:
    found = ratio_of_ratios([6, 4], [3, 1], [5, 5], [4, 4], np.array([[1, 1], [0, 2], [2, 0]]))
    assert found.value == 2
    assert found.low == pytest.approx(1.6 + 0.05 * (2 - 1.6))
    assert found.high == pytest.approx(3.2 - 0.05 * (3.2 - 2))


def test_what_both_sides_share_cancels() -> None:
    """Prompts of very different speed, and a gain of 1.5 on each: the paired interval has no width."""
    stream = np.random.default_rng(0)
    tokens, base_seconds = np.full(20, 64), stream.uniform(0.1, 10, size=20)
    weights = resampled_prompts(20, 1000, seed=0)
    found = ratio_of_ratios(tokens, base_seconds / 1.5, tokens, base_seconds, weights)
    assert (found.value, found.low, found.high) == pytest.approx((1.5, 1.5, 1.5), abs=1e-12)
    alone = ratio_of_sums(tokens, base_seconds, weights)
    assert alone.high / alone.low > 1.3, "speed itself is uncertain"
