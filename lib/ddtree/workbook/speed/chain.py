"""Decoding against the `dflash` package's own loop: the same models, prompts and temperatures, whole calls timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ddtree.decode import Strategy, generate
from ddtree.models.zoo import Pair
from ddtree.sampling import SamplingParams
from ddtree.workbook.speed.medians import columns
from ddtree.workbook.stats import ratio_of_ratios, ratio_of_sums, resampled_prompts

PEER = "dflash_generate"
OURS: tuple[Strategy, ...] = ("autoregressive", "chain", "tree")
WARM_UP_TOKENS = 4
OVER_PEER = ("over_peer", "over_peer_lo", "over_peer_hi")


def peer_missing() -> str | None:
    """Why `dflash_generate` cannot run here, or None."""
    try:
        import dflash.model  # noqa: F401
        from transformers import DynamicCache
    except ImportError as error:
        return f"{PEER} cannot be imported: {error}"
    if not hasattr(DynamicCache, "activate_past_recording"):
        return f"{PEER} needs the cache of transformers 5.15; the one here cannot record its past"
    return None


def measure_chain(
    name: str,
    pair: Pair,
    prompts: Sequence[Sequence[int]],
    *,
    temperatures: Sequence[float],
    budget: int,
    topk_cap: int,
    tokens: int,
    resamples: int,
    seed: int,
    say: Callable[[str], object] = print,
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """One row per temperature and method: tokens per second of whole calls, prefill included; and what was skipped.

    Methods take turns prompt by prompt, each time from a different start. `over_peer` is a method's speed over
    `dflash_generate`'s, None where that cannot run. Intervals are 95 %, by resampling prompts.
    """
    methods: dict[str, Callable[[Sequence[int], float, int], int]] = {
        strategy: _ours(pair, strategy, budget, topk_cap, seed) for strategy in OURS
    }
    reason = peer_missing()
    if reason is None:
        methods[PEER] = _peer(pair, seed)
    names, synchronise = list(methods), _synchronise_on(pair.target.device)
    rows: list[dict[str, Any]] = []
    for temperature in temperatures:
        for method in names:
            methods[method](prompts[0], temperature, WARM_UP_TOKENS)
        made: dict[str, list[float]] = {method: [] for method in names}
        took: dict[str, list[float]] = {method: [] for method in names}
        for turn, prompt in enumerate(prompts):
            first = turn % len(names)
            for method in names[first:] + names[:first]:
                synchronise()
                began = time.perf_counter()
                made[method].append(methods[method](prompt, temperature, tokens))
                synchronise()
                took[method].append(time.perf_counter() - began)
        weights = resampled_prompts(len(prompts), resamples, seed)
        for method in names:
            against = (made[PEER], took[PEER], weights) if PEER in methods else None
            over = ratio_of_ratios(made[method], took[method], *against) if against else None
            rows.append(
                {
                    "model": name,
                    "temperature": temperature,
                    "method": method,
                    **columns("tokens_per_s", ratio_of_sums(made[method], took[method], weights)),
                    **(
                        columns("over_peer", over)
                        if over
                        else dict.fromkeys(("over_peer", "over_peer_lo", "over_peer_hi"))
                    ),
                    "tokens": int(sum(made[method])),
                    "prompts": len(prompts),
                }
            )
        say(f"chain: {name}, temperature {temperature:g}")
    return rows, [] if reason is None else [{"what": PEER, "why": reason}]


def _ours(
    pair: Pair, strategy: Strategy, budget: int, topk_cap: int, seed: int
) -> Callable[[Sequence[int], float, int], int]:
    def decode(prompt: Sequence[int], temperature: float, tokens: int) -> int:
        (answer,) = generate(
            pair.target,
            pair.drafter,
            [list(prompt)],
            strategy=strategy,
            sampling=SamplingParams(temperature),
            max_new_tokens=tokens,
            budget=budget,
            topk_cap=topk_cap,
            seed=seed,
        )
        return len(answer.tokens)

    return decode


def _peer(pair: Pair, seed: int) -> Callable[[Sequence[int], float, int], int]:
    from dflash.model import dflash_generate

    def decode(prompt: Sequence[int], temperature: float, tokens: int) -> int:
        torch.manual_seed(seed)
        ids = torch.tensor([list(prompt)], device=pair.target.device)
        answer = dflash_generate(
            pair.drafter.model,
            pair.target.model,
            ids,
            tokens,
            sorted(pair.target.eos_ids) or None,
            temperature=temperature,
        )
        return answer.shape[1] - len(prompt)

    return decode


def _synchronise_on(device: torch.device) -> Callable[[], None]:
    return torch.cuda.synchronize if device.type == "cuda" else lambda: None
