"""The live measurement: every setting on every prompt in one process, interleaved, with a record of each round."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import torch

from ddtree.adaptive_budget import COST_BUDGETS, AutoBudget, RoundCost, measure_round_cost
from ddtree.decode import (
    STAGES,
    Generation,
    Step,
    Strategy,
    generate,
)
from ddtree.models.zoo import Pair
from ddtree.sampling import SamplingParams, target_probs
from ddtree.workbook.interrupts import stoppable
from ddtree.workbook.live.record import LiveRecord
from ddtree.workbook.params import LiveParams

WARM_UP_TOKENS = 12
SETTING = ["temperature", "label", "strategy", "budget"]
PLACE = [*SETTING, "prompt", "repeat"]
STEPS = "steps"  # of a line of the record: its rounds


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to decode, at one temperature."""

    temperature: float
    strategy: Strategy
    budget: int  # of the draft tree, the largest where it is chosen; 0 where the strategy has none
    topk_cap: int
    auto: bool = False  # the budget is chosen round by round

    @property
    def label(self) -> str:
        if self.strategy != "tree":
            return self.strategy
        return f"tree {'auto' if self.auto else self.budget}/{self.topk_cap}"


@dataclass(frozen=True, slots=True)
class Measurements:
    """What was decoded, of prompts that have every setting alone: one row per generation, one row per round.

    A prompt measured twice (`repeats`) counts twice. `stopped` says why some were not measured, "" if all were.
    """

    generations: pd.DataFrame
    rounds: pd.DataFrame
    prompts_done: int
    prompts_planned: int
    stopped: str
    auto: AutoBudget | None  # what chose the nodes of settings without a budget of their own

    def budget_for(self, asked: int | Literal["auto"]) -> int | AutoBudget:
        """What `generate` takes for a budget of the parameters. Raises ValueError for an "auto" never measured."""
        return _measured(self.auto) if asked == "auto" else asked


def settings(params: LiveParams) -> list[Setting]:
    """Autoregressive, chain and tree at every temperature; further budgets at the highest one."""
    hottest = max(params.temperatures)
    found = []
    for temperature in params.temperatures:
        budgets = [params.budget, *(params.extra_budgets if temperature == hottest else [])]
        found.append(Setting(temperature, "autoregressive", 0, 0))
        found.append(Setting(temperature, "chain", 0, 0))
        for budget in dict.fromkeys(budgets):
            largest = COST_BUDGETS[-1] if budget == "auto" else budget
            found.append(Setting(temperature, "tree", largest, params.topk_cap, auto=budget == "auto"))
    return found


def measure(pair: Pair, params: LiveParams, record: Path) -> Measurements:
    """Decode every prompt under every setting, in turn, and keep a record of each on disk as it comes.

    Settings are interleaved prompt by prompt and start at a different one each time, so that a machine that slows
    down slows all of them. All settings of one prompt share their coins. Prints one line per prompt.

    An unfinished `record` of the same parameters is continued. SIGINT, SIGTERM or an exception ends the measurement
    after the prompts that have every setting, and `stopped` says why; with no such prompt it is raised.
    """
    todo = settings(params)
    lines = LiveRecord.open(record, pair, params)
    planned = params.repeats * len(params.prompts)
    stopped, auto = "", None
    try:
        with stoppable():
            if any(setting.auto for setting in todo):
                auto = AutoBudget(lines.round_cost(lambda: _round_cost(pair, params)))
            _measure_rest(pair, params, todo, lines, auto)
    except (KeyboardInterrupt, Exception) as error:
        done = len(lines.rows()) // len(todo)
        if done == 0:
            raise
        interrupted = isinstance(error, KeyboardInterrupt)
        stopped = "it was interrupted" if interrupted else f"{type(error).__name__}: {error}"
        if not interrupted:
            traceback.print_exc()
        print(f"stopped after {done} of {planned} prompts: {stopped}", flush=True)
    rows = lines.rows()
    done = len(rows) // len(todo)
    return _measurements(rows[: done * len(todo)], done, planned, stopped, auto)


def _round_cost(pair: Pair, params: LiveParams) -> RoundCost:
    print("measuring what a round costs, for the budget that is chosen", flush=True)
    return measure_round_cost(
        pair.target,
        pair.drafter,
        params.prompts[:1],
        topk_cap=params.topk_cap,
        temperature=max(params.temperatures),
        backend=params.backend,
    )


def _measure_rest(
    pair: Pair, params: LiveParams, todo: list[Setting], lines: LiveRecord, auto: AutoBudget | None
) -> None:
    """Measure what the record lacks of the plan, which it holds in the plan's order."""
    turns = [(repeat, index) for repeat in range(params.repeats) for index in range(len(params.prompts))]
    plan = [(turn, setting) for turn in range(len(turns)) for setting in _rotated(todo, turn)]
    there = len(lines.rows())
    if there:
        print(f"continuing {lines.path.name}: {there // len(todo)} of {len(turns)} prompts are there", flush=True)
    if there < len(plan):
        for setting in todo:
            _decode(pair, params, setting, auto, params.prompts[0], seed=params.seed, tokens=WARM_UP_TOKENS)
    began = time.perf_counter()
    for number, (turn, setting) in enumerate(plan[there:], start=there + 1):
        repeat, index = turns[turn]
        seed = params.seed + len(params.prompts) * repeat + index
        chances: list[dict[str, float]] = []
        answer = _decode(
            pair,
            params,
            setting,
            auto,
            params.prompts[index],
            seed=seed,
            tokens=params.max_new_tokens,
            on_step=lambda step, found=chances, at=setting: found.append(_chances(step, params, at)),  # type: ignore[misc]
        )
        where = {
            "temperature": setting.temperature,
            "label": setting.label,
            "strategy": setting.strategy,
            "budget": setting.budget,
            "prompt": index,
            "repeat": repeat,
        }
        lines.append(where | _generation_row(answer) | {STEPS: list(_round_rows(answer, chances))})
        if number % len(todo) == 0:
            seconds = time.perf_counter() - began
            left = seconds / (number - there) * (len(plan) - number)
            print(_progress(turn + 1, len(turns), seconds, left), flush=True)


def _measurements(
    rows: list[dict[str, Any]], done: int, planned: int, stopped: str, auto: AutoBudget | None
) -> Measurements:
    generations = pd.DataFrame([{name: value for name, value in row.items() if name != STEPS} for row in rows])
    rounds = [
        {name: row[name] for name in PLACE} | {"round": number} | step
        for row in rows
        for number, step in enumerate(row[STEPS])
    ]
    return Measurements(generations, pd.DataFrame(rounds), done, planned, stopped, auto)


def _decode(
    pair: Pair,
    params: LiveParams,
    setting: Setting,
    auto: AutoBudget | None,
    prompt: str,
    *,
    seed: int,
    tokens: int,
    on_step: Callable[[Step], None] | None = None,
) -> Generation:
    return generate(
        pair.target,
        pair.drafter,
        [prompt],
        strategy=setting.strategy,
        sampling=_sampling(params, setting),
        max_new_tokens=tokens,
        budget=_measured(auto) if setting.auto else setting.budget,
        topk_cap=setting.topk_cap or None,
        draft_temperature=params.draft_temperature,
        seed=seed,
        backend=params.backend,
        on_step=on_step,
    )[0]


def _measured(auto: AutoBudget | None) -> AutoBudget:
    if auto is None:
        raise ValueError('no setting of this measurement has the budget "auto", so no cost was measured for it.')
    return auto


def _sampling(params: LiveParams, setting: Setting) -> SamplingParams:
    return SamplingParams(setting.temperature, params.top_k, params.top_p, params.min_p)


def _chances(step: Step, params: LiveParams, setting: Setting) -> dict[str, float]:
    """How uncertain the target is after a round's root, and how much of that the tree offers.

    entropy: of the distribution that the first token is drawn from, in nats; offered: its mass on the root's
    children, which is the probability that a first draft is accepted.
    """
    how = _sampling(params, setting)
    probs = target_probs(
        step.logits[0, :1], temperature=how.temperature, top_k=how.top_k, top_p=how.top_p, min_p=how.min_p
    )[0]
    children = step.tree.tokens[0, step.tree.parents[0] == 0]
    return {"entropy": float(torch.special.entr(probs).sum()), "offered": min(1.0, float(probs[children].sum()))}


def _generation_row(answer: Generation) -> dict[str, object]:
    return {
        "tokens": len(answer.tokens),
        "rounds": len(answer.steps),
        "decode_ms": answer.decode_ms,
        "prefill_ms": answer.prefill_ms,
        "reason": answer.reason,
        "token_ids": answer.tokens,
        "text": answer.text,
    }


def _round_rows(answer: Generation, chances: list[dict[str, float]]) -> Iterator[dict[str, object]]:
    for step, chance in zip(answer.steps, chances, strict=True):
        times = {f"{stage}_ms": step.stage_ms[stage] for stage in STAGES}
        yield {"tree_size": step.tree_size, "accepted": step.accepted, "emitted": step.emitted, **times, **chance}


def _rotated(todo: list[Setting], by: int) -> list[Setting]:
    start = by % len(todo)
    return todo[start:] + todo[:start]


def _progress(done: int, total: int, seconds: float, left: float) -> str:
    return f"prompt {done} of {total} · {seconds:.0f} s · about {left:.0f} s left"
