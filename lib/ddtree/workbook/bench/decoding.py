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
from ddtree.workbook.bench.timing import Benchmark, Clock, Skipped, interleaved
from ddtree.workbook.params import SpeedParams
from ddtree.workbook.stats import columns, median, ratio, ratio_of_ratios, ratio_of_sums, resampled_prompts

SYNTHETIC_PROMPT_TOKENS = 64  # of a prompt for a random-weight model
FIRST_COUNTED = 2  # rounds of a run before it: caches grow, libraries initialise themselves
WARM_UP_TOKENS = 4
BASELINE = "dflash_generate"
STRATEGIES: tuple[Strategy, ...] = ("autoregressive", "chain", "tree")

Rows = list[dict[str, Any]]
Say = Callable[[str], object]
Decode = Callable[[list[int], float, int], int]  # prompt, temperature and tokens at most, to tokens made


def load_pairs(names: Sequence[str], device: torch.device, skipped: Skipped, say: Say) -> Iterator[tuple[str, Pair]]:
    """One pair after the other, each freed before the next is loaded; what cannot be loaded is added to `skipped`."""
    for name in names:
        try:
            if name in SHAPES:
                dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
                pair = random_pair(name, dtype=dtype, device=device.type)
            else:
                pair = load_pair(name, device=device.type)
        except (ImportError, OSError, RuntimeError, ValueError) as error:
            skipped.append({"what": name, "why": f"{type(error).__name__}: {error}"})
            say(f"{name}: skipped, {error}")
            continue
        yield name, pair
        del pair
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()


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


def measure_rounds(name: str, pair: Pair, prompts: Sequence[list[int]], params: SpeedParams, say: Say) -> Rows:
    """One row per batch, budget and stage: microseconds of a round; "overhead" is all but the two forward passes.

    A batch repeats the prompts, each request with its own seed, and decodes `live_tokens` tokens of each.
    """
    sampling = SamplingParams(params.temperature, params.top_k, params.top_p)
    rows: Rows = []
    for batch, budget in product(params.live_batches, params.live_budgets):
        for tokens in (FIRST_COUNTED + 1, params.live_tokens):  # the first run warms up
            answers = generate(
                pair.target,
                pair.drafter,
                [prompts[i % len(prompts)] for i in range(batch)],
                strategy="tree",
                sampling=sampling,
                max_new_tokens=tokens,
                budget=budget,
                topk_cap=params.topk_cap,
                seed=list(range(params.seed, params.seed + batch)),
            )
        times = stage_times(answers)
        say(f"rounds: {name}, batch {batch}, budget {budget}, {len(times)} of them")
        rows += _stage_rows({"model": name, "batch": batch, "budget": budget}, times, params.seed)
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
    rows = []
    for stage, values in parts.items():
        shares = columns("share", ratio(values, parts["round"], seed=seed))
        times_us = columns("us", median(values, seed=seed))
        rows.append({**place, "stage": stage, **times_us, **shares, "rounds": len(times)})
    return rows


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
    name: str, pair: Pair, prompts: Sequence[list[int]], params: SpeedParams, skipped: Skipped, say: Say
) -> Rows:
    """One row per temperature and method: tokens per second of whole calls, prefill included.

    Methods are interleaved prompt by prompt. `over_peer` is a method's speed over `dflash_generate`'s, None where that
    cannot run. Intervals are 95 %, by resampling prompts.
    """
    methods: dict[str, Decode] = {strategy: _generate(pair, strategy, params) for strategy in STRATEGIES}
    reason = baseline_missing()
    if reason is None:
        methods[BASELINE] = _dflash_generate(pair, params.seed)
    elif (entry := {"what": BASELINE, "why": reason}) not in skipped:
        skipped.append(entry)
    weights = resampled_prompts(len(prompts), params.bootstrap, params.seed)
    rows: Rows = []
    for temperature in comparable_temperatures(name, params.temperatures):
        for decode in methods.values():
            decode(prompts[0], temperature, WARM_UP_TOKENS)
        calls = _time_calls(methods, prompts, temperature, params.max_new_tokens, pair.target.device)
        for method, (made, took) in calls.items():
            over: dict[str, Any] = dict.fromkeys(("over_peer", "over_peer_lo", "over_peer_hi"))
            if BASELINE in calls:
                over |= columns("over_peer", ratio_of_ratios(made, took, *calls[BASELINE], weights))
            speed = columns("tokens_per_s", ratio_of_sums(made, took, weights))
            row = {"model": name, "temperature": temperature, "method": method, **speed, **over}
            rows.append(row | {"tokens": sum(made), "prompts": len(prompts)})
        say(f"chain: {name}, temperature {temperature:g}")
    return rows


def _time_calls(
    methods: dict[str, Decode], prompts: Sequence[list[int]], temperature: float, tokens: int, device: torch.device
) -> dict[str, tuple[list[int], list[float]]]:
    """Tokens and seconds of each method's calls, one for each prompt."""
    made: dict[str, list[int]] = {method: [] for method in methods}

    def benchmark(method: str, decode: Decode) -> Benchmark:
        def run(turn: int) -> None:
            made[method].append(decode(prompts[turn], temperature, tokens))
            if device.type == "cuda":
                torch.cuda.synchronize()  # so every call also begins on an idle device

        return Benchmark(method, run)

    benchmarks = [benchmark(method, decode) for method, decode in methods.items()]
    timings = interleaved(benchmarks, repeats=len(prompts), clock=Clock(torch.device("cpu")), warm_up=0)
    return {method: (made[method], [1e-6 * us for us in timings[method]]) for method in methods}


def _generate(pair: Pair, strategy: Strategy, params: SpeedParams) -> Decode:
    def decode(prompt: list[int], temperature: float, tokens: int) -> int:
        (answer,) = generate(
            pair.target,
            pair.drafter,
            [prompt],
            strategy=strategy,
            sampling=SamplingParams(temperature),
            max_new_tokens=tokens,
            budget=params.live_budgets[0],
            topk_cap=params.topk_cap,
            seed=params.seed,
        )
        return len(answer.tokens)

    return decode


def _dflash_generate(pair: Pair, seed: int) -> Decode:
    from dflash.model import dflash_generate

    target, drafter = pair.target, pair.drafter

    def decode(prompt: list[int], temperature: float, tokens: int) -> int:
        torch.manual_seed(seed)
        ids = torch.tensor([prompt], device=target.device)
        stop = sorted(target.eos_ids) or None
        answer = dflash_generate(drafter.model, target.model, ids, tokens, stop, temperature=temperature)
        return int(answer.shape[1]) - len(prompt)

    return decode
