"""Coins of a round, made on the device from (request seed, prefix length, node): no neighbour or batch shifts them.

A counter goes through SplitMix64's finaliser three times, in int64 arithmetic that wraps alike on every device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ddtree.kernels.compiled import dtypes, start

BITS = 23  # odd multiples of 2^-24 are exact in float32 and never 0 or 1
GOLDEN = 0x9E3779B97F4A7C15
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def round_coins(seeds: Tensor, prefix_len: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """float32 [bs, width] for the nodes and float32 [bs] for the last draw, all in (0, 1).

    `seeds` int64 [bs], `prefix_len` int64 [bs]; a prefix only grows, so no two rounds of a request share a coin.
    """
    lane = torch.arange(width + 1, dtype=torch.int64, device=seeds.device)
    round_key = _mixed(_mixed(seeds + _signed(GOLDEN)) + prefix_len * _signed(GOLDEN))
    mixed = _mixed(round_key[:, None] + (lane + 1) * _signed(GOLDEN))
    drawn = _shifted(mixed, 64 - BITS).to(torch.float32)
    coins = (drawn + 0.5) * 2.0**-BITS
    return coins[:, 1:].contiguous(), coins[:, 0].contiguous()


def coins_on_device(seeds: Tensor, prefix_len: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """`round_coins` in one kernel, in place of forty small ones a round."""
    import triton

    from ddtree.serving.coins_kernel import draw_coins

    bs = len(seeds)
    coins = torch.empty(bs, width, dtype=torch.float32, device=seeds.device)
    finals = torch.empty(bs, dtype=torch.float32, device=seeds.device)
    if bs:
        lanes = triton.next_power_of_2(width + 1)
        read = seeds.contiguous(), prefix_len.contiguous()
        key = ("draw_coins", *dtypes(read), lanes)
        start(draw_coins, (bs,), (*read, coins, finals, width, GOLDEN, BITS, lanes), seeds.device, key, warps=4)
    return coins, finals


def _mixed(x: Tensor) -> Tensor:
    x = (x ^ _shifted(x, 30)) * _signed(FIRST)
    x = (x ^ _shifted(x, 27)) * _signed(SECOND)
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, by: int) -> Tensor:
    return (x >> by) & ((1 << (64 - by)) - 1)  # torch shifts the sign in


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
