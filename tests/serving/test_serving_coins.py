"""Coins: uniform, never 0 or 1, and a function of request, prefix and node alone."""

import numpy as np
import torch
from ddtree.kernels.round_ops import _mixed, round_coins
from scipy.stats import kstest


def splitmix(x: int) -> int:
    """SplitMix64's finaliser in whole numbers of Python."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def test_the_finaliser_is_splitmix64() -> None:
    values = [0, 1, 2**63 - 1, 0x9E3779B97F4A7C15, 2**64 - 1, 123456789]
    signed = torch.tensor([v - 2**64 if v >= 2**63 else v for v in values])
    assert [v % 2**64 for v in _mixed(signed).tolist()] == [splitmix(v) for v in values]
    assert splitmix(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF, "the first output of SplitMix64 seeded with 0"


def test_a_coin_depends_on_its_own_request_prefix_and_node_alone() -> None:
    seeds, prefix = torch.tensor([5, 5, 9]), torch.tensor([10, 11, 10])
    coins, finals = round_coins(seeds, prefix, 17)
    alone, final = round_coins(seeds[1:2], prefix[1:2], 5)
    assert torch.equal(coins[1, :5], alone[0])
    assert finals[1] == final[0]
    everything = torch.cat([coins, finals[:, None]], dim=1).flatten()
    assert len(everything.unique()) == everything.numel()


def test_coins_are_uniform_inside_the_open_interval() -> None:
    """Over prefixes of one seed, over neighbouring seeds and over nodes; 60,000 each, so 0.7 % off would be seen."""
    many = torch.arange(60_000)
    for coins in (
        round_coins(torch.full_like(many, 3), many, 1)[0],
        round_coins(many, torch.full_like(many, 7), 1)[1],
        round_coins(torch.tensor([1]), torch.tensor([1]), 60_000)[0],
    ):
        assert coins.min() > 0
        assert coins.max() < 1
        assert kstest(coins.flatten().numpy(), "uniform").pvalue > 1e-3
    pairs = round_coins(torch.full_like(many, 3), many, 2)[0].numpy()
    assert abs(np.corrcoef(pairs[:, 0], pairs[:, 1])[0, 1]) < 0.015
    assert abs(np.corrcoef(pairs[1:, 0], pairs[:-1, 1])[0, 1]) < 0.015
