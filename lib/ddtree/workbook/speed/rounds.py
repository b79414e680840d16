"""What a live round is made of: `generate`'s own stage times at shapes of models, batch sizes and budgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ddtree.decode import FORWARDS, STAGES, Generation, generate
from ddtree.models.zoo import Pair
from ddtree.sampling import SamplingParams
from ddtree.workbook.speed.medians import columns, median, ratio

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
