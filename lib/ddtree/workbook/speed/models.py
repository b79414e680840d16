"""The pairs that live measurements run, by name; one that cannot be had is skipped with its reason."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from ddtree.models.shapes import SHAPES, random_pair
from ddtree.models.zoo import Pair, load_pair

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
