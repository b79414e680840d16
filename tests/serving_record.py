"""A made-up record of a serving run whose ratios are known: what the view, the figures and the notebook are tested on.

A plain step takes 1 ms and 0.04 ms for each identity layer. A round of DFLASH takes a step and 2 ms, one of DDTREE a
step and 2 ms and a hundredth of a millisecond for each node. Every reply has 121 tokens, 120 of them from rounds.
"""

from pathlib import Path
from typing import Any

import numpy as np
from ddtree.workbook.params import ServingParams
from ddtree.workbook.records import write_result

TOKENS, FIRST_S = 121, 0.02
DRAFTED = TOKENS - 1
ROUNDS = {  # of one reply, by server and temperature
    "dflash": {0.0: 40, 0.6: 48, 1.0: 60},
    "ddtree-16": {0.0: 30, 0.6: 40, 1.0: 50},
    "ddtree-32": {0.0: 24, 0.6: 32, 1.0: 48},
    "ddtree-64": {0.0: 20, 0.6: 30, 1.0: 40},
}
TOGETHER_SLOWER = 1.5  # a round of a batch over a round alone


def step_s(extra_layers: int) -> float:
    return 1e-3 + 4e-5 * extra_layers


def round_s(name: str, extra_layers: int) -> float:
    return step_s(extra_layers) if name == "plain" else step_s(extra_layers) + 2e-3 + 1e-5 * (budget_of(name) or 0)


def rounds_of(name: str, temperature: float) -> int:
    return DRAFTED if name == "plain" else ROUNDS[name][temperature]


def budget_of(name: str) -> int | None:
    return int(name.partition("-")[2]) if name.startswith("ddtree") else None


def made_up(params: ServingParams, *, jitter: float = 0.0) -> dict[str, Any]:
    """The metrics of a run with the settings of `params`; `jitter` is the relative spread of a prompt's times."""
    stream = np.random.default_rng(5)
    names = ["plain", "dflash", *(f"ddtree-{budget}" for budget in params.budgets)]
    parts: dict[str, list[dict[str, Any]]] = {part: [] for part in PARTS}
    for extra_layers in params.extra_layers:
        for name in names:
            key = {"name": name, "method": name.partition("-")[0], "budget": budget_of(name)}
            placed = {"extra_layers": extra_layers} | key
            parts["servers"].append(placed | _server(name, extra_layers, params.topk_cap))
            for temperature in params.temperatures:
                hot = placed | {"temperature": temperature}
                parts["alone"] += [
                    hot | {"prompt": prompt} | _reply(name, temperature, extra_layers, _wobble(stream, jitter))
                    for prompt in range(len(params.prompts))
                ]
                parts["together"] += [
                    hot | {"repeat": repeat, "batch": batch} | _replies(name, temperature, extra_layers, batch, wobble)
                    for batch in params.batches
                    if batch > 1
                    for repeat in range(params.repeats)
                    for wobble in [_wobble(stream, jitter)]
                ]
                if name != "plain":
                    parts["histograms"].append(hot | {"counts": _counts(name, temperature, len(params.prompts))})
            if name != "plain":
                parts["greedy"] += [placed | _greedy(prompt, jitter) for prompt in range(len(params.prompts))]
    parts["depth_is_free"] = [
        {"extra_layers": layers, "prompt": prompt, "same": True}
        for layers in params.extra_layers
        if layers
        for prompt in range(len(params.prompts))
    ]
    parts["diversity"] = [
        {"name": name, "method": name.partition("-")[0], "budget": budget_of(name), "temperature": temperature}
        | {"samples": params.samples, "distinct": params.samples}
        for name in names
        for temperature in params.temperatures
        if temperature > 0
    ]
    return dict(parts)


def write_made_up(folder: Path, params: ServingParams, *, jitter: float = 0.0) -> Path:
    """FOLDER/result.json of a made-up run."""
    metrics = made_up(params, jitter=jitter)
    return write_result(folder, notebook="04_serving", params=params, metrics=metrics, wall_s=1.0)


PARTS = ("servers", "alone", "together", "histograms", "greedy", "depth_is_free", "diversity", "skipped")


def _server(name: str, extra_layers: int, topk_cap: int) -> dict[str, Any]:
    return {
        "topk_cap": topk_cap if name.startswith("ddtree") else None,
        "layers": 30 + extra_layers,
        "command": f"python -m sglang.launch_server --model-path model-{extra_layers}",
        "start_s": 80.0,
        "url": None,
        "git_revision": "0123456789abcdef",
        "ready_utc": "2026-11-30T05:54:00+00:00",
    }


def _reply(name: str, temperature: float, extra_layers: int, wobble: float) -> dict[str, Any]:
    rounds = rounds_of(name, temperature)
    drafts = name != "plain"
    return {
        "tokens": TOKENS,
        "total_s": FIRST_S + rounds * round_s(name, extra_layers) * wobble,
        "first_token_s": FIRST_S,
        "rounds": rounds if drafts else None,
        "acceptance": DRAFTED / rounds if drafts else None,
    }


def _replies(name: str, temperature: float, extra_layers: int, batch: int, wobble: float) -> dict[str, Any]:
    rounds = rounds_of(name, temperature)
    return {
        "tokens": batch * TOKENS,
        "wall_s": FIRST_S + rounds * round_s(name, extra_layers) * TOGETHER_SLOWER * wobble,
        "first_token_s": FIRST_S,
        "rounds": batch * rounds if name != "plain" else None,
        "requests": batch,
    }


def _counts(name: str, temperature: float, prompts: int) -> dict[str, int]:
    """A geometric histogram with the rounds of all prompts in it."""
    rounds = rounds_of(name, temperature)
    keep = 1 - rounds / DRAFTED
    shares = [(1 - keep) * keep**k for k in range(7)] + [keep**7]
    return {str(k + 1): round(rounds * prompts * share) for k, share in enumerate(shares)}


def _greedy(prompt: int, jitter: float) -> dict[str, Any]:
    """Every third text diverges at a near-tie, in a record with jitter."""
    diverges = bool(jitter) and prompt % 3 == 0
    return {
        "prompt": prompt,
        "tokens": TOKENS,
        "first_difference": 17 if diverges else None,
        "gap_nats": 0.125 if diverges else None,
        "second_choice": True if diverges else None,
    }


def _wobble(stream: np.random.Generator, jitter: float) -> float:
    return float(np.exp(jitter * stream.standard_normal()))
