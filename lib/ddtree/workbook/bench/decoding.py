"""Time whole rounds on live pairs, and `generate` against the `dflash` package's own loop."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from ddtree.decode import FORWARDS, STAGES, Generation, Strategy, generate
from ddtree.models.zoo import Pair, load_pair
from ddtree.sampling import SamplingParams
from ddtree.workbook.bench.synthetic_models import SHAPES, random_pair
from ddtree.workbook.stats import columns, median, ratio, ratio_of_ratios, ratio_of_sums, resampled_prompts

SHAPE_PROMPT = 64  # tokens of a prompt for a model that speaks no language


def pairs(
    names: Sequence[str], device: torch.device, skipped: list[dict[str, str]], say: Callable[[str], object]
) -> Iterator[tuple[str, Pair]]:
    """Each pair in turn, forgotten before the next is made. What cannot be had is added to `skipped`."""
    for name in names:
        try:
            pair = _load(name, device)
        except (ImportError, OSError, RuntimeError, ValueError) as error:
            skipped.append({"what": name, "why": f"{type(error).__name__}: {error}"})
            say(f"{name}: skipped, {error}")
            continue
        yield name, pair
        del pair
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()


def _load(name: str, device: torch.device) -> Pair:
    if name in SHAPES:
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        return random_pair(name, dtype=dtype, device=device.type)
    return load_pair(name, device=device.type)


def prompts_for(name: str, pair: Pair, prompts: Sequence[str], *, seed: int) -> list[list[int]]:
    """Token ids of `prompts`; for a shape, as many random prompts."""
    if name not in SHAPES:
        return [pair.target.encode(prompt) for prompt in prompts]
    stream = np.random.default_rng(seed)
    return [stream.integers(0, SHAPES[name].vocab, SHAPE_PROMPT).tolist() for _ in prompts]


def compared_temperatures(name: str, temperatures: Sequence[float]) -> list[float]:
    """Those at which another decoder can be compared on this pair: for a shape, 0 alone.

    Random weights make both of its models nearly uniform, and a drafter that samples would be right by chance.
    """
    return [temperature for temperature in temperatures if name not in SHAPES or temperature == 0]


def facts_of(name: str, pair: Pair) -> dict[str, Any]:
    """What a record says of a pair."""
    weights = sum(p.numel() * p.element_size() for p in pair.target.model.parameters())
    return {"name": name, **pair.facts, "target_bytes": weights}


FIRST_COUNTED = 2  # rounds of a run before it: caches grow, libraries set themselves up


def measure_rounds(
    name: str,
    pair: Pair,
    prompts: Sequence[Sequence[int]],
    *,
    batches: Sequence[int],
    budgets: Sequence[int],
    topk_cap: int,
    sampling: SamplingParams,
    tokens: int,
    seed: int,
    say: Callable[[str], object] = print,
) -> list[dict[str, Any]]:
    """One row per batch, budget and stage: microseconds of a round; "overhead" is all but the two forwards.

    A batch repeats the prompts, each request with a seed of its own, and decodes `tokens` tokens of each.
    """
    rows: list[dict[str, Any]] = []
    for batch in batches:
        batched = [list(prompts[i % len(prompts)]) for i in range(batch)]
        for budget in budgets:
            options: dict[str, Any] = {
                "strategy": "tree",
                "sampling": sampling,
                "budget": budget,
                "topk_cap": topk_cap,
                "seed": list(range(seed, seed + batch)),
            }
            for longest in (FIRST_COUNTED + 1, tokens):  # the first run warms up
                answers = generate(pair.target, pair.drafter, batched, max_new_tokens=longest, **options)
            times = whole_rounds(answers)
            say(f"rounds: {name}, batch {batch}, budget {budget}, {len(times)} of them")
            rows += _rows({"model": name, "batch": batch, "budget": budget}, times, seed)
    return rows


def whole_rounds(answers: Sequence[Generation]) -> list[dict[str, float]]:
    """Milliseconds by stage of the rounds that every request of the batch took part in, but for the first few."""
    together = min(len(answer.steps) for answer in answers)
    first = min(FIRST_COUNTED, together - 1)
    return [step.stage_ms for step in answers[0].steps[first:together]]


def _rows(place: dict[str, Any], times: Sequence[dict[str, float]], seed: int) -> list[dict[str, Any]]:
    whole = [1e3 * sum(time.values()) for time in times]
    parts = {stage: [1e3 * time[stage] for time in times] for stage in STAGES}
    parts["overhead"] = [sum(parts[s][i] for s in STAGES if s not in FORWARDS) for i in range(len(times))]
    parts["round"] = whole
    return [
        {
            **place,
            "stage": stage,
            **columns("us", median(values, seed=seed)),
            **columns("share", ratio(values, whole, seed=seed)),
            "rounds": len(times),
        }
        for stage, values in parts.items()
    ]


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
