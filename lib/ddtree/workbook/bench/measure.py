"""The whole measurement, part by part, as plain rows that a result.json can hold; needs neither pandas nor Jupyter."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import torch

from ddtree.sampling import SamplingParams
from ddtree.workbook.bench.decoding import (
    compared_temperatures,
    facts_of,
    measure_chain,
    measure_rounds,
    pairs,
    prompts_for,
)
from ddtree.workbook.bench.inputs import Sizes
from ddtree.workbook.bench.kernels import measure_attention, measure_bandwidth, measure_stages, measure_verify
from ddtree.workbook.params import SpeedParams

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
Say = Callable[[str], object]
Keep = Callable[[dict[str, Any]], object]  # called with what there is so far, after each of its parts


def measure_speed(params: SpeedParams, *, say: Say = print, keep: Keep = lambda _: None) -> dict[str, Any]:
    """Everything, a few minutes: both parts, what was skipped in either, and why.

    Raises RuntimeError where a GPU is asked for and there is none.
    """
    kernels = measure_kernels(params, say=say, keep=keep)

    def both(live: dict[str, Any]) -> dict[str, Any]:
        return {**kernels, **live, "skipped": kernels["skipped"] + live["skipped"]}

    return both(measure_live(params, say=say, keep=lambda live: keep(both(live))))


def measure_kernels(params: SpeedParams, *, say: Say = print, keep: Keep = lambda _: None) -> dict[str, Any]:
    """What needs no model: bytes per second of a copy; rows of stages, builders, verify pipelines and attention."""
    device = _device(params)
    bandwidth = measure_bandwidth(device)
    say(f"copy: {bandwidth.bytes_per_s / 1e9:.0f} GB/s, read and written")
    grid = [
        Sizes(vocab, batch, budget, params.depth, params.topk_cap)
        for vocab, batch, budget in product(params.vocabularies, params.batches, params.budgets)
    ]
    plain = SamplingParams(params.temperature)
    filtered = SamplingParams(params.temperature, params.top_k, params.top_p)
    timed: dict[str, Any] = {
        "repeats": params.repeats,
        "bandwidth": bandwidth,
        "device": device,
        "seed": params.seed,
        "say": say,
    }
    logits = timed | {"dtype": DTYPES[params.logits_dtype]}
    shape = timed | {"depth": params.depth, "topk_cap": params.topk_cap}
    skipped: list[dict[str, str]] = []
    metrics: dict[str, Any] = {"copy_bytes_per_s": bandwidth.bytes_per_s, "skipped": skipped}
    metrics["stages"], metrics["builders"] = measure_stages(grid, sampling=filtered, skipped=skipped, **logits)
    keep(metrics)
    filters = {f"top-k {params.top_k}, top-p {params.top_p:g}": filtered, "no filter": plain}
    metrics["verify"], not_run = measure_verify(grid, filters, **logits)
    skipped += not_run
    keep(metrics)
    metrics["attention"], not_run = measure_attention(params.batches, params.budgets, **shape)
    skipped += not_run
    keep(metrics)
    return metrics


def measure_live(params: SpeedParams, *, say: Say = print, keep: Keep = lambda _: None) -> dict[str, Any]:
    """What runs models: facts of each, rows of its rounds, and of whole calls against `dflash_generate`."""
    device = _device(params)
    skipped: list[dict[str, str]] = []
    models: list[dict[str, Any]] = []
    rounds: list[dict[str, Any]] = []
    chain: list[dict[str, Any]] = []
    metrics: dict[str, Any] = {"models": models, "rounds": rounds, "chain": chain, "skipped": skipped}
    for name, pair in pairs(params.live_models, device, skipped, say):
        models.append(facts_of(name, pair))
        prompts = prompts_for(name, pair, params.prompts, seed=params.seed)
        common: dict[str, Any] = {"topk_cap": params.topk_cap, "seed": params.seed, "say": say}
        rounds += measure_rounds(
            name,
            pair,
            prompts,
            batches=params.live_batches,
            budgets=params.live_budgets,
            sampling=SamplingParams(params.temperature, params.top_k, params.top_p),
            tokens=params.live_tokens,
            **common,
        )
        rows, not_run = measure_chain(
            name,
            pair,
            prompts,
            temperatures=compared_temperatures(name, params.temperatures),
            budget=params.live_budgets[0],
            tokens=params.max_new_tokens,
            resamples=params.bootstrap,
            **common,
        )
        chain += rows
        skipped += [entry for entry in not_run if entry not in skipped]
        keep(metrics)
    return metrics


def _device(params: SpeedParams) -> torch.device:
    device = torch.device(params.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RuntimeError('device is "cuda", but torch finds no CUDA device here; use device: cpu.')
    return device
