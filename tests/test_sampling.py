"""target_probs against float64 and worked numbers; coins are open, and keyed by seed and step alone."""

import numpy as np
import pytest
import torch
from ddtree.sampling import NonFiniteLogitsError, SamplingParams, step_coins, target_probs
from hypothesis import assume, example, given
from hypothesis import strategies as st
from oracles import filtered64
from scipy.stats import kstest
from torch import Tensor
from wording import names

RAMP = [2.0, 1.5, 1.0, 0.5]
RAMP_PROBS = [0.4551, 0.2760, 0.1674, 0.1015]


def from_probs(*probs: float) -> Tensor:
    return torch.tensor(probs).log()


def assert_probs(found: Tensor, right: list) -> None:
    np.testing.assert_allclose(found.numpy(), right, atol=5e-5)


def test_top_k_comes_before_top_p() -> None:
    logits = from_probs(0.35, 0.25, 0.20, 0.05, *[0.03] * 5)
    assert_probs(target_probs(logits, temperature=1.0, top_k=4, top_p=0.82), [0.4375, 0.3125, 0.25, *[0.0] * 6])


@pytest.mark.parametrize(("top_p", "right"), [(0.6, [0.625, 0.375, 0, 0]), (0.85, [0.5263, 0.3158, 0.1579, 0])])
def test_token_that_crosses_top_p_stays(top_p: float, right: list[float]) -> None:
    assert_probs(target_probs(from_probs(0.5, 0.3, 0.15, 0.05), temperature=1.0, top_p=top_p), right)


def test_min_p_is_relative_to_the_likeliest() -> None:
    found = target_probs(from_probs(0.5, 0.3, 0.15, 0.05), temperature=1.0, min_p=0.2)
    assert_probs(found, [0.5263, 0.3158, 0.1579, 0])
    assert found[3] == 0


def test_greedy_and_sampled_requests_share_a_batch() -> None:
    found = target_probs(torch.tensor([[RAMP], [RAMP]]), temperature=[0.0, 1.0])
    assert found[0, 0].tolist() == [1, 0, 0, 0]
    assert_probs(found[1, 0], RAMP_PROBS)


def test_hot_row_is_nearly_flat() -> None:
    assert_probs(target_probs(torch.tensor(RAMP), temperature=100.0), [0.2519, 0.2506, 0.2494, 0.2481])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_tiny_temperature_is_one_hot_in_any_type(dtype: torch.dtype) -> None:
    found = target_probs(torch.tensor(RAMP, dtype=dtype), temperature=1e-6)
    assert found.tolist() == [1, 0, 0, 0]
    assert found.dtype == torch.float32


def test_coldest_sampled_temperature_is_finite_in_half_precision() -> None:
    found = target_probs(torch.tensor(RAMP, dtype=torch.float16), temperature=2e-5)
    assert found.tolist() == [1, 0, 0, 0]


def test_greedy_tie_goes_to_the_first_and_ignores_filters() -> None:
    assert target_probs(torch.tensor([1.0, 3.0, 3.0]), temperature=0.0, top_k=2, top_p=0.5).tolist() == [0, 1, 0]


def test_one_value_per_request_is_repeated_over_its_nodes() -> None:
    found = target_probs(torch.tensor([[[1.0, 0.0]] * 2] * 2), temperature=[0.5, 2.0])
    assert_probs(found, [[[0.8808, 0.1192]] * 2, [[0.6225, 0.3775]] * 2])


def test_every_parameter_follows_its_request() -> None:
    logits = torch.randn(4, 3, 12, generator=torch.Generator().manual_seed(0))
    settings = [(0.7, 3, 1.0, 0.0), (0.0, 0, 1.0, 0.0), (1.3, 0, 0.6, 0.0), (1.0, 5, 0.9, 0.2)]
    names = ("temperature", "top_k", "top_p", "min_p")
    together = target_probs(logits, **dict(zip(names, map(list, zip(*settings, strict=True)), strict=True)))
    for row, values in enumerate(settings):
        alone = target_probs(logits[row], **dict(zip(names, values, strict=True)))
        torch.testing.assert_close(together[row], alone, rtol=1e-6, atol=0)
        assert torch.equal(together[row] > 0, alone > 0)


@pytest.mark.parametrize(("k", "right"), [(1, [1]), (2, [1, 0]), (3, [0, 1, 3]), (4, [0, 1, 3, 4])])
def test_ties_at_rank_k_go_to_the_lower_id(k: int, right: list[int]) -> None:
    kept = target_probs(torch.tensor([1.0, 2.0, 0.0, 1.0, 1.0]), temperature=1.0, top_k=k)
    assert kept.nonzero()[:, 0].tolist() == sorted(right)


@given(
    eighths=st.lists(st.integers(-40, 40), min_size=1, max_size=24),
    temperature=st.one_of(st.just(0.0), st.floats(0.125, 8.0, width=32)),
    top_k=st.integers(0, 28),
    top_p=st.one_of(st.just(1.0), st.floats(0.0625, 1.0, width=32)),
    min_p=st.one_of(st.just(0.0), st.just(1.0), st.floats(0.0, 1.0, width=32)),
)
@example(eighths=[3, 3, 3, 3], temperature=1.0, top_k=2, top_p=1.0, min_p=1.0)
def test_row_equals_float64(eighths: list[int], temperature: float, top_k: int, top_p: float, min_p: float) -> None:
    logits = [e / 8 for e in eighths]
    right = filtered64(logits, temperature, top_k, top_p, min_p)
    assume(right.margin > 1e-5)
    found = target_probs(torch.tensor(logits), temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    np.testing.assert_allclose(found.numpy(), right.probs, atol=2e-6)
    assert ((found > 0).numpy() == (right.probs > 1e-37)).all()


def test_minus_infinity_has_probability_zero() -> None:
    found = target_probs(torch.tensor([0.0, -torch.inf, 0.0]), temperature=1.0, top_k=3, top_p=0.99)
    assert found.tolist() == [0.5, 0, 0.5]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
def test_row_that_is_not_finite_is_named(poison: float, temperature: float) -> None:
    logits = torch.zeros(3, 4, 5)
    logits[2, 1, 3] = poison
    with pytest.raises(NonFiniteLogitsError, match=names("request 2 node 1")):
        target_probs(logits, temperature=temperature)


def test_row_with_nothing_possible_is_named() -> None:
    logits = torch.zeros(3, 4, 5)
    logits[1, 3] = -torch.inf
    with pytest.raises(NonFiniteLogitsError, match=names("request 1 node 3")):
        target_probs(logits, temperature=1.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_k", -1),
        ("top_k", 1.5),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", -0.1),
        ("min_p", 1.5),
    ],
)
def test_parameter_out_of_range_is_named(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        SamplingParams(**{name: value})
    with pytest.raises(ValueError, match=name):
        target_probs(torch.zeros(2, 1, 3), **{"temperature": 1.0, name: [0.5 if name != "top_k" else 0, value]})


def test_wrong_number_of_values_is_refused() -> None:
    with pytest.raises(ValueError, match=names("top_p 2 3")):
        target_probs(torch.zeros(3, 4), temperature=1.0, top_p=[0.5, 0.6])


@pytest.mark.parametrize(("temperature", "greedy"), [(0.0, True), (9e-6, True), (1e-5, False), (1.0, False)])
def test_greedy_begins_below_one_hundred_thousandth(temperature: float, greedy: bool) -> None:
    assert SamplingParams(temperature).greedy is greedy
    flat = target_probs(torch.tensor([0.0, 0.0]), temperature=temperature)
    assert flat.tolist() == ([1, 0] if greedy else [0.5, 0.5])


def splitmix(x: int) -> int:
    """SplitMix64's finalizer in whole numbers of Python."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def coin(seed: int, prefix_len: int, lane: int) -> float:
    """The definition of a coin; lane 0 is the final draw's, lane i + 1 node i's."""
    golden = 0x9E3779B97F4A7C15
    key = splitmix((splitmix((seed + golden) % 2**64) + prefix_len * golden) % 2**64)
    return ((splitmix((key + (lane + 1) * golden) % 2**64) >> 41) + 0.5) / 2**23


def test_coins_are_those_of_the_definition() -> None:
    assert splitmix(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF, "the first output of SplitMix64 seeded with 0"
    seeds, prefixes = [0, 1, 2**63 - 1, 2**63, -1, 2**64 + 1], [0, 1, 7, 5000, 2**31, 3]
    nodes, finals = step_coins(seeds, prefixes, 5)
    assert nodes.dtype == finals.dtype == torch.float32
    for row, (seed, prefix) in enumerate(zip(seeds, prefixes, strict=True)):
        assert nodes[row].tolist() == [coin(seed, prefix, node + 1) for node in range(5)]
        assert finals[row].item() == coin(seed, prefix, 0)


def test_coins_want_one_seed_and_one_prefix_a_request() -> None:
    with pytest.raises(ValueError, match="seeds has 1 values and prefix_len 3"):
        step_coins([5], [1, 2, 3], 4)


def test_coins_lie_strictly_inside_zero_and_one() -> None:
    nodes, finals = step_coins(range(300), [0] * 300, 400)
    for coins in (nodes, finals):
        assert coins.min() > 0
        assert coins.max() < 1
    # Every value is an odd multiple of 2^-24, exact in float32, so 0 and 1 cannot occur.
    assert ((nodes.double() * 2**24) % 2 == 1).all()


def test_coins_are_uniform_and_not_correlated() -> None:
    """Over prefixes of one seed, over neighbouring seeds and over nodes; 60,000 each, so 0.7 % off would be seen."""
    many = 60_000
    for coins in (
        step_coins([3] * many, range(many), 1)[0],
        step_coins(range(many), [7] * many, 1)[1],
        step_coins([1], [1], many)[0],
    ):
        assert kstest(coins.flatten().numpy(), "uniform").pvalue > 1e-3
    pairs = step_coins([3] * many, range(many), 2)[0].numpy()
    assert abs(np.corrcoef(pairs[:, 0], pairs[:, 1])[0, 1]) < 0.015
    assert abs(np.corrcoef(pairs[1:, 0], pairs[:-1, 1])[0, 1]) < 0.015


def test_coins_depend_only_on_seed_prefix_and_node() -> None:
    nodes, finals = step_coins([1, 42, 9], [0, 5, 77], 65)
    alone, final = step_coins([42], [5], 3)
    assert alone[0].tolist() == nodes[1, :3].tolist()
    assert final.item() == finals[1].item()
    seeds, prefixes = zip(*[(seed, prefix) for seed in (0, 1, 2**63, -1) for prefix in range(3)], strict=True)
    everything = torch.cat([coins.flatten() for coins in step_coins(seeds, prefixes, 4)])
    assert len(everything.unique()) == everything.numel()
