"""Run the whole benchmark, part by part, as plain rows that a result.json can hold; needs no Jupyter."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import torch

from ddtree.sampling import SamplingParams
from ddtree.workbook.bench.decoding import encode_prompts, load_pairs, measure_calls, measure_rounds
from ddtree.workbook.bench.inputs import Sizes
from ddtree.workbook.bench.kernels import Setup, measure_attention, measure_bandwidth, measure_stages, measure_verify
from ddtree.workbook.params import SpeedParams

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
Say = Callable[[str], object]
Keep = Callable[[dict[str, Any]], object]  # called with everything measured so far, after each part


def measure_speed(params: SpeedParams, *, say: Say = print, keep: Keep = lambda _: None) -> dict[str, Any]:
    """Measure kernels and live models, in a few minutes; `skipped` says what could not be measured, and why.

    Raises RuntimeError where `device` is "cuda" and torch finds no GPU.
    """
    kernels = measure_kernels(params, say=say, keep=keep)

    def joined(live: dict[str, Any]) -> dict[str, Any]:
        return {**kernels, **live, "skipped": kernels["skipped"] + live["skipped"]}

    return joined(measure_live(params, say=say, keep=lambda live: keep(joined(live))))


def measure_kernels(params: SpeedParams, *, say: Say = print, keep: Keep = lambda _: None) -> dict[str, Any]:
    """What needs no model: bytes per second of a copy; rows of stages, builders, verify pipelines and attention."""
    device = _device(params)
    bytes_per_s = measure_bandwidth(device)
    say(f"copy: {bytes_per_s / 1e9:.0f} GB/s, read and written")
    setup = Setup(device, DTYPES[params.logits_dtype], params.repeats, params.seed, bytes_per_s, say=say)
    grid = [
        Sizes(vocab, batch, budget, params.depth, params.topk_cap)
        for vocab, batch, budget in product(params.vocabularies, params.batches, params.budgets)
    ]
    filtered = SamplingParams(params.temperature, params.top_k, params.top_p)
    named = f"top-k {params.top_k}, top-p {params.top_p:g}"
    filters = {named: filtered, "no filter": SamplingParams(params.temperature)}
    metrics: dict[str, Any] = {"copy_bytes_per_s": bytes_per_s, "skipped": setup.skipped}
    metrics["stages"], metrics["builders"] = measure_stages(grid, filtered, setup)
    keep(metrics)
    metrics["verify"] = measure_verify(grid, filters, setup)
    keep(metrics)
    metrics["attention"] = measure_attention(
        params.batches, params.budgets, setup, depth=params.depth, topk_cap=params.topk_cap
    )
    keep(metrics)
    return metrics


def measure_live(params: SpeedParams, *, say: Say = print, keep: Keep = lambda _: None) -> dict[str, Any]:
    """What runs models: facts of each, rows of its rounds, and of whole calls against `dflash_generate`."""
    device = _device(params)
    metrics: dict[str, Any] = {"models": [], "rounds": [], "chain": [], "skipped": []}
    for name, pair in load_pairs(params.live_models, device, metrics["skipped"], say):
        weights = sum(p.numel() * p.element_size() for p in pair.target.model.parameters())
        metrics["models"].append({"name": name, **pair.facts, "target_bytes": weights})
        prompts = encode_prompts(name, pair, params.prompts, seed=params.seed)
        metrics["rounds"] += measure_rounds(name, pair, prompts, params, say)
        metrics["chain"] += measure_calls(name, pair, prompts, params, metrics["skipped"], say)
        keep(metrics)
        del pair  # else it would stay in memory while the next one is loaded
    return metrics


def _device(params: SpeedParams) -> torch.device:
    if params.device == "cuda" and not torch.cuda.is_available():
        raise RuntimeError('device is "cuda", but torch finds no CUDA device here; use device: cpu.')
    return torch.device(params.device)
