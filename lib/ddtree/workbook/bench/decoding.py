"""Time whole rounds on live pairs, and whole calls of `generate` against the `dflash` package's own loop."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch

from ddtree.decode import FORWARDS, STAGES, Generation, Strategy, generate
from ddtree.models.zoo import Pair, load_pair
from ddtree.sampling import SamplingParams
from ddtree.workbook.bench.synthetic_models import SHAPES, random_pair
from ddtree.workbook.bench.timing import HOST_CLOCK, Benchmark, Skipped, interleaved
from ddtree.workbook.stats import columns, median, ratio, ratio_of_ratios, ratio_of_sums, resampled_prompts

SYNTHETIC_PROMPT_TOKENS = 64  # of a prompt for a random-weight model
FIRST_COUNTED = 2  # rounds of a run before it: caches grow, libraries initialise themselves
WARM_UP_TOKENS = 4
BASELINE = "dflash_generate"
STRATEGIES: tuple[Strategy, ...] = ("autoregressive", "chain", "tree")

Rows = list[dict[str, Any]]
Decode = Callable[[Sequence[int], float, int], int]  # prompt, temperature and tokens at most, to tokens made


def load_pairs(
    names: Sequence[str], device: torch.device, skipped: Skipped, say: Callable[[str], object]
) -> Iterator[tuple[str, Pair]]:
    """One pair after the other, each freed before the next is loaded; what cannot be loaded is added to `skipped`."""
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


def pair_facts(name: str, pair: Pair) -> dict[str, Any]:
    """What the record says of a pair."""
    weights = sum(p.numel() * p.element_size() for p in pair.target.model.parameters())
    return {"name": name, **pair.facts, "target_bytes": weights}


def encode_prompts(name: str, pair: Pair, prompts: Sequence[str], *, seed: int) -> list[list[int]]:
    """Token ids of `prompts`; for a random-weight model, as many random prompts."""
    if name not in SHAPES:
        return [pair.target.encode(prompt) for prompt in prompts]
    stream = np.random.default_rng(seed)
    return [stream.integers(0, SHAPES[name].vocab, SYNTHETIC_PROMPT_TOKENS).tolist() for _ in prompts]


def comparable_temperatures(name: str, temperatures: Sequence[float]) -> list[float]:
    """The temperatures at which this pair can be compared with another decoder: only 0 for a random-weight model.

    Random weights make target and drafter nearly uniform, so a drafter that samples would be right by chance.
    """
    return [temperature for temperature in temperatures if name not in SHAPES or temperature == 0]


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
) -> Rows:
    """One row per batch, budget and stage: microseconds of a round; "overhead" is all but the two forward passes.

    A batch repeats the prompts, each request with its own seed, and decodes `tokens` tokens of each.
    """
    rows: Rows = []
    for batch, budget in product(batches, budgets):
        batched = [list(prompts[i % len(prompts)]) for i in range(batch)]
        for most in (FIRST_COUNTED + 1, tokens):  # the first run warms up
            answers = generate(
                pair.target,
                pair.drafter,
                batched,
                strategy="tree",
                sampling=sampling,
                max_new_tokens=most,
                budget=budget,
                topk_cap=topk_cap,
                seed=list(range(seed, seed + batch)),
            )
        times = stage_times(answers)
        say(f"rounds: {name}, batch {batch}, budget {budget}, {len(times)} of them")
        rows += _stage_rows({"model": name, "batch": batch, "budget": budget}, times, seed)
    return rows


def stage_times(answers: Sequence[Generation]) -> list[dict[str, float]]:
    """Milliseconds by stage of the rounds that every request of the batch took part in, without the first few."""
    complete = min(len(answer.steps) for answer in answers)
    first = min(FIRST_COUNTED, complete - 1)
    return [step.stage_ms for step in answers[0].steps[first:complete]]


def _stage_rows(place: dict[str, Any], times: Sequence[dict[str, float]], seed: int) -> Rows:
    parts = {stage: [1e3 * time[stage] for time in times] for stage in STAGES}
    parts["overhead"] = [1e3 * sum(time[s] for s in STAGES if s not in FORWARDS) for time in times]
    parts["round"] = [1e3 * sum(time.values()) for time in times]
    return [
        {
            **place,
            "stage": stage,
            **columns("us", median(values, seed=seed)),
            **columns("share", ratio(values, parts["round"], seed=seed)),
            "rounds": len(times),
        }
        for stage, values in parts.items()
    ]


def baseline_missing() -> str | None:
    """Why `dflash_generate` cannot run here, or None."""
    try:
        import dflash.model  # noqa: F401
        from transformers import DynamicCache
    except ImportError as error:
        return f"{BASELINE} cannot be imported: {error}"
    if not hasattr(DynamicCache, "activate_past_recording"):
        return f"{BASELINE} needs the cache of transformers 5.15; the one here cannot record its past"
    return None


def measure_calls(
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
    skipped: Skipped,
    say: Callable[[str], object] = print,
) -> Rows:
    """One row per temperature and method: tokens per second of whole calls, prefill included.

    Methods are interleaved prompt by prompt. `over_peer` is a method's speed over `dflash_generate`'s, None where that
    cannot run. Intervals are 95 %, by resampling prompts.
    """
    methods: dict[str, Decode] = {
        strategy: _generate(pair, strategy, budget, topk_cap, seed) for strategy in STRATEGIES
    }
    reason = baseline_missing()
    if reason is None:
        methods[BASELINE] = _dflash_generate(pair, seed)
    elif (entry := {"what": BASELINE, "why": reason}) not in skipped:
        skipped.append(entry)
    weights = resampled_prompts(len(prompts), resamples, seed)
    rows: Rows = []
    for temperature in temperatures:
        for decode in methods.values():
            decode(prompts[0], temperature, WARM_UP_TOKENS)
        made, took = _time_calls(methods, prompts, temperature, tokens, pair.target.device)
        for method in methods:
            over: dict[str, float | None] = dict.fromkeys(("over_peer", "over_peer_lo", "over_peer_hi"))
            if BASELINE in methods:
                against = (made[BASELINE], took[BASELINE])
                over |= columns("over_peer", ratio_of_ratios(made[method], took[method], *against, weights))
            rows.append(
                {
                    "model": name,
                    "temperature": temperature,
                    "method": method,
                    **columns("tokens_per_s", ratio_of_sums(made[method], took[method], weights)),
                    **over,
                    "tokens": sum(made[method]),
                    "prompts": len(prompts),
                }
            )
        say(f"chain: {name}, temperature {temperature:g}")
    return rows


def _time_calls(
    methods: dict[str, Decode],
    prompts: Sequence[Sequence[int]],
    temperature: float,
    tokens: int,
    device: torch.device,
) -> tuple[dict[str, list[int]], dict[str, list[float]]]:
    """Tokens and seconds of each method's calls, one for each prompt."""
    made: dict[str, list[int]] = {method: [] for method in methods}

    def benchmark(method: str, decode: Decode) -> Benchmark:
        def run(turn: int) -> None:
            made[method].append(decode(prompts[turn], temperature, tokens))
            if device.type == "cuda":
                torch.cuda.synchronize()  # so every call also begins on an idle device

        return Benchmark(method, run)

    benchmarks = [benchmark(method, decode) for method, decode in methods.items()]
    timings = interleaved(benchmarks, repeats=len(prompts), clock=HOST_CLOCK, warm_up=0)
    return made, {method: [1e-6 * us for us in microseconds] for method, microseconds in timings.items()}


def _generate(pair: Pair, strategy: Strategy, budget: int, topk_cap: int, seed: int) -> Decode:
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


def _dflash_generate(pair: Pair, seed: int) -> Decode:
    from dflash.model import dflash_generate

    def decode(prompt: Sequence[int], temperature: float, tokens: int) -> int:
        torch.manual_seed(seed)
        ids = torch.tensor([list(prompt)], device=pair.target.device)
        stop = sorted(pair.target.eos_ids) or None
        answer = dflash_generate(pair.drafter.model, pair.target.model, ids, tokens, stop, temperature=temperature)
        return int(answer.shape[1]) - len(prompt)

    return decode
