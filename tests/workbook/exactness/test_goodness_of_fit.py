"""The G-test by hand, its level and power by simulation with fixed seeds, intervals that cover, Holm by hand."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from ddtree.workbook.exactness.goodness_of_fit import ALPHA, fit, holm, pool, smallest_departure
from scipy import stats
from wording import names

FLAT = np.full(10, 0.1)
PEAKED = np.array([0.9, 0.04, 0.03, 0.02, 0.01])
LONG = np.append(0.5 ** np.arange(1, 12), 0.5**11)


# Pooling


def test_cells_that_expect_fewer_than_five_become_one() -> None:
    cells = pool([50, 30, 12, 4, 3, 1], [0.5, 0.3, 0.12, 0.04, 0.03, 0.01])
    assert cells.expected.tolist() == pytest.approx([50, 30, 12, 8])
    assert cells.seen.tolist() == [50, 30, 12, 8]
    assert cells.impossible == 0


def test_a_pool_still_too_small_takes_the_least_cell_with_it() -> None:
    cells = pool([90, 7, 2, 1], [0.9, 0.07, 0.02, 0.01])
    assert cells.expected.tolist() == pytest.approx([90, 10])
    assert cells.seen.tolist() == [90, 10]


def test_cells_are_ordered_by_expectation_and_no_draw_is_lost() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        law = rng.dirichlet(np.full(40, 0.1))
        law[rng.random(40) < 0.2] = 0
        law /= law.sum()
        counts = rng.multinomial(300, rng.dirichlet(np.ones(40)))
        cells = pool(counts, law)
        assert cells.seen.sum() + cells.impossible == 300
        assert cells.impossible == counts[law == 0].sum()
        assert cells.expected.sum() == pytest.approx(300)
        assert len(cells.expected) == 1 or cells.expected.min() >= 5


def test_counts_and_law_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match=names("counts (2,) probs (3,)")):
        pool([1, 2], [0.5, 0.25, 0.25])


# The test


def test_statistic_by_hand() -> None:
    found = fit([pool([60, 40], [0.5, 0.5])])
    g = 2 * (60 * math.log(60 / 50) + 40 * math.log(40 / 50))
    williams = 1 + (100 / 50 + 100 / 50 - 1) / (6 * 100 * 1)
    assert found.statistic == pytest.approx(g / williams)
    assert found.p == pytest.approx(stats.chi2.sf(g / williams, 1))
    assert (found.draws, found.cells, found.df, found.impossible) == (100, 2, 1, 0)
    assert found.tv == pytest.approx(0.1)


def test_groups_add_up() -> None:
    one, two = pool([60, 40], [0.5, 0.5]), pool([30, 50, 20], [0.3, 0.4, 0.3])
    both = fit([one, two])
    assert both.statistic == pytest.approx(fit([one]).statistic + fit([two]).statistic)
    assert both.df == 3
    assert both.tv == pytest.approx((0.1 + 0.1) / 2)


def test_perfect_counts_have_no_distance() -> None:
    found = fit([pool([500, 300, 200], [0.5, 0.3, 0.2])])
    assert (found.statistic, found.tv, found.tv_lo) == pytest.approx((0, 0, 0))
    assert found.p == 1
    assert 0 < found.tv_hi < 0.06


def test_one_impossible_draw_is_enough() -> None:
    found = fit([pool([5000, 4999, 1], [0.5, 0.5, 0.0])])
    assert (found.p, found.impossible) == (0.0, 1)
    assert math.isfinite(found.statistic)
    assert found.tv == pytest.approx(1e-4)


def test_a_law_of_one_outcome_passes_or_is_broken() -> None:
    assert fit([pool([100, 0], [1.0, 0.0])]).p == 1.0
    assert fit([pool([99, 1], [1.0, 0.0])]).p == 0.0


def test_nothing_drawn_claims_nothing() -> None:
    found = fit([pool([0, 0], [0.5, 0.5])])
    assert (found.draws, found.p, found.smallest_found) == (0, 1.0, 1.0)
    assert fit([]).p == 1.0, "a root without children has no second token to judge"


@pytest.mark.parametrize("law", [FLAT, PEAKED, LONG, np.random.default_rng(3).dirichlet(np.full(3000, 0.2))])
def test_level_is_what_it_says(law: np.ndarray) -> None:
    """Under the law itself 5 % of p-values lie below .05: 600 samples, four standard errors are .036."""
    rng = np.random.default_rng(7)
    p = [fit([pool(rng.multinomial(2000, law), law)]).p for _ in range(600)]
    assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=0.036)
    assert np.mean(np.array(p) < 0.01) <= 0.01 + 0.0165


# Power


def half_up(law: np.ndarray, tv: float) -> np.ndarray:
    """The hardest departure: one set of cells grows by a factor, the rest shrinks by one."""
    order = np.argsort(-law)
    grows = np.zeros(len(law), dtype=bool)
    for place in order:  # the set's mass comes as near to a half as it will
        grows[place] = law[grows].sum() + law[place] <= 0.5
    if law.max() >= 0.5:
        grows = np.arange(len(law)) != law.argmax()
    changed = law.copy()
    changed[grows] *= 1 + tv / law[grows].sum()
    changed[~grows] *= 1 - tv / law[~grows].sum()
    return changed


def one_cell(law: np.ndarray, tv: float) -> np.ndarray:
    changed = law * (1 - tv / (1 - law[-1]))
    changed[-1] = law[-1] + tv
    return changed


def evenly(law: np.ndarray, tv: float) -> np.ndarray:
    """Mass moved towards the uniform law."""
    flat = np.full(len(law), 1 / len(law))
    return law + tv / (0.5 * np.abs(flat - law).sum()) * (flat - law)


@pytest.mark.parametrize(("law", "depart"), [(FLAT, half_up), (PEAKED, half_up), (LONG[:7] / LONG[:7].sum(), half_up)])
def test_smallest_departure_is_found_in_99_of_100_and_half_of_it_is_not(
    law: np.ndarray, depart: Callable[[np.ndarray, float], np.ndarray]
) -> None:
    """200 samples at true power .99: fewer than 193 has probability below .2 %."""
    n, rng = 3000, np.random.default_rng(11)
    size = smallest_departure([(n, law)])
    assert 0.5 * np.abs(depart(law, size) - law).sum() == pytest.approx(size)
    found = [fit([pool(rng.multinomial(n, depart(law, size)), law)]).p < ALPHA for _ in range(200)]
    assert sum(found) >= 193
    smaller = [fit([pool(rng.multinomial(n, depart(law, size / 2)), law)]).p < ALPHA for _ in range(200)]
    assert sum(smaller) < 140, "the size stated is not far too cautious in its hardest direction"


@pytest.mark.parametrize("depart", [one_cell, evenly])
@pytest.mark.parametrize("law", [PEAKED, LONG[:7] / LONG[:7].sum()])
def test_other_directions_are_found_no_less(law: np.ndarray, depart: Callable[[np.ndarray, float], np.ndarray]) -> None:
    n, rng = 3000, np.random.default_rng(13)
    changed = depart(law, smallest_departure([(n, law)]))
    assert sum(fit([pool(rng.multinomial(n, changed), law)]).p < ALPHA for _ in range(200)) >= 193


def test_smallest_departure_of_several_groups_holds_where_it_is_hardest() -> None:
    """By Cauchy and Schwarz: each group departs in proportion to its k."""
    sizes, laws = [2000, 1000], [FLAT, PEAKED]
    spreads = [0.25, 0.9 * 0.1]
    size = smallest_departure(list(zip(sizes, laws, strict=True)))
    scale = size * sum(sizes) / sum(n * k for n, k in zip(sizes, spreads, strict=True))
    departures = [scale * k for k in spreads]
    assert sum(n * d for n, d in zip(sizes, departures, strict=True)) / 3000 == pytest.approx(size)
    changed = [half_up(law, d) for law, d in zip(laws, departures, strict=True)]
    rng = np.random.default_rng(17)
    found = 0
    for _ in range(200):
        groups = [pool(rng.multinomial(n, c), law) for n, c, law in zip(sizes, changed, laws, strict=True)]
        found += fit(groups).p < ALPHA
    assert found >= 193


def test_four_times_the_draws_find_half_the_departure() -> None:
    assert smallest_departure([(40_000, FLAT)]) == pytest.approx(smallest_departure([(10_000, FLAT)]) / 2)


def test_one_outcome_is_broken_by_the_first_impossible_draw() -> None:
    size = smallest_departure([(1000, np.ones(1))])
    assert 1 - (1 - size) ** 1000 == pytest.approx(0.99)


# Total variation


@pytest.mark.parametrize(("law", "truth"), [(FLAT, 0.0), (FLAT, 0.05), (PEAKED, 0.03)])
def test_interval_holds_the_truth_in_95_of_100(law: np.ndarray, truth: float) -> None:
    rng = np.random.default_rng(5)
    changed = half_up(law, truth)
    found = [fit([pool(rng.multinomial(2000, changed), law)], seed=run) for run in range(200)]
    assert (
        sum(f.tv_lo <= truth <= f.tv_hi for f in found) >= 183
    )  # .95 less two standard errors; it errs to the wide side
    assert np.mean([f.tv_hi - f.tv_lo for f in found]) < 0.1


# Holm


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]).tolist() == pytest.approx([1, 1])
    assert holm([0.0, 0.0, 0.4]).tolist() == pytest.approx([0, 0, 0.4])
    assert holm([]).tolist() == []


def test_holm_keeps_the_chance_of_any_false_alarm() -> None:
    rng = np.random.default_rng(2)
    alarms = sum((holm(rng.random(50)) < 0.05).any() for _ in range(1000))
    assert alarms <= 50 + 4 * math.sqrt(1000 * 0.05 * 0.95)
