"""Measures every decoding setting on every prompt in one process, interleaved, with a record of each round.

A prompt counts once every setting has decoded it, so an interrupted measurement compares all settings on equal terms.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd
import torch

from ddtree.adaptive_budget import COST_BUDGETS, AutoBudget, RoundCost, measure_round_cost
from ddtree.decode import STAGES, Generation, Step, Strategy, generate
from ddtree.models.zoo import Pair
from ddtree.sampling import SamplingParams, target_probs
from ddtree.workbook.interrupts import stoppable
from ddtree.workbook.live.record import LiveRecord
from ddtree.workbook.params import LiveParams

WARM_UP_TOKENS = 12
SETTING = ["temperature", "label", "strategy", "budget"]
PLACE = [*SETTING, "prompt", "repeat"]
STEPS = "steps"  # field of a line of the record: its rounds


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to decode, at one temperature."""

    temperature: float
    strategy: Strategy
    budget: int  # of the draft tree, the largest for an automatic budget; 0 if the strategy has no tree
    topk_cap: int
    auto: bool = False  # each round chooses its budget

    @property
    def label(self) -> str:
        if self.strategy != "tree":
            return self.strategy
        return f"tree {'auto' if self.auto else self.budget}/{self.topk_cap}"


@dataclass(frozen=True, slots=True)
class Measurements:
    """The generations and rounds of the prompts that every setting has decoded, one row each.

    A prompt measured twice (`repeats`) counts twice. `stopped` says why some were not measured, "" if all were.
    """

    generations: pd.DataFrame
    rounds: pd.DataFrame
    prompts_done: int
    prompts_planned: int
    stopped: str
    auto: AutoBudget | None  # of the settings whose budget is "auto", None if there is none


def settings(params: LiveParams) -> list[Setting]:
    """Autoregressive, chain and tree at every temperature; extra budgets only at the highest one."""
    highest = max(params.temperatures)
    found = []
    for temperature in params.temperatures:
        budgets = [params.budget, *(params.extra_budgets if temperature == highest else [])]
        found.append(Setting(temperature, "autoregressive", 0, 0))
        found.append(Setting(temperature, "chain", 0, 0))
        for budget in dict.fromkeys(budgets):
            largest = COST_BUDGETS[-1] if budget == "auto" else budget
            found.append(Setting(temperature, "tree", largest, params.topk_cap, auto=budget == "auto"))
    return found


def measure(pair: Pair, params: LiveParams, record: Path) -> Measurements:
    """Decode every prompt with every setting and write each generation to `record` before the next.

    Settings are interleaved prompt by prompt and start at a different one each time, so a machine that slows down
    slows all of them. All settings of one prompt share their coins. Prints one line per prompt, with the time left.

    With `minutes` the measurement ends before the first prompt that would not fit, the costs and the warm-up counted;
    one prompt is always measured. A run that ends so is complete.

    An unfinished `record` of the same parameters is continued. SIGINT, SIGTERM or an exception ends the measurement
    after the prompts that every setting has decoded, and `stopped` says why; if there is none it is raised.
    """
    todo = settings(params)
    budgets: dict[Setting, int | AutoBudget] = {setting: setting.budget for setting in todo}
    lines = LiveRecord.open(record, pair, params)
    planned = params.repeats * len(params.prompts)
    end = time.perf_counter() + 60 * params.minutes if params.minutes else math.inf
    stopped, auto = "", None
    try:
        with stoppable():
            if any(setting.auto for setting in todo):
                auto = AutoBudget(lines.round_cost(lambda: _round_cost(pair, params)))
                budgets |= {setting: auto for setting in todo if setting.auto}
            _measure_missing(pair, params, budgets, lines, end)
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
    rows = rows[: done * len(todo)]
    rounds = [
        {name: row[name] for name in PLACE} | {"round": number} | step
        for row in rows
        for number, step in enumerate(row.pop(STEPS))
    ]
    return Measurements(pd.DataFrame(rows), pd.DataFrame(rounds), done, planned, stopped, auto)


def decode(
    pair: Pair,
    params: LiveParams,
    prompts: Sequence[str],
    *,
    strategy: Strategy,
    temperature: float,
    budget: int | AutoBudget,
    seed: int | Sequence[int],
    tokens: int,
    on_step: Callable[[Step], None] | None = None,
) -> list[Generation]:
    """`generate` with filters, top-k cap, draft temperature and backend of the parameters. Raises what it raises."""
    return generate(
        pair.target,
        pair.drafter,
        prompts,
        strategy=strategy,
        sampling=sampling_at(params, temperature),
        max_new_tokens=tokens,
        budget=budget,
        topk_cap=params.topk_cap,
        draft_temperature=params.draft_temperature,
        seed=seed,
        backend=params.backend,
        on_step=on_step,
    )


def sampling_at(params: LiveParams, temperature: float) -> SamplingParams:
    """The filters of the parameters at one temperature."""
    return SamplingParams(temperature, params.top_k, params.top_p, params.min_p)


def _round_cost(pair: Pair, params: LiveParams) -> RoundCost:
    print(f"measuring the cost of a round at {len(COST_BUDGETS)} budgets, for the budget auto", flush=True)
    return measure_round_cost(
        pair.target,
        pair.drafter,
        params.prompts[:1],
        topk_cap=params.topk_cap,
        temperature=max(params.temperatures),
        backend=params.backend,
        on_budget=lambda budget, ms: print(f"budget {budget}: {ms:.1f} ms a round", flush=True),
    )


def _measure_missing(
    pair: Pair, params: LiveParams, budgets: dict[Setting, int | AutoBudget], lines: LiveRecord, end: float
) -> None:
    """Measure what the record lacks, in the order of the plan, without a prompt that would last beyond `end`."""
    todo = list(budgets)
    turns = [(repeat, index) for repeat in range(params.repeats) for index in range(len(params.prompts))]
    plan = [(turn, todo[(place + turn) % len(todo)]) for turn in range(len(turns)) for place in range(len(todo))]
    there = len(lines.rows())
    if there:
        print(f"continuing {lines.path.name}: {there // len(todo)} of {len(turns)} prompts are there", flush=True)
    if there < len(plan):
        _warm_up(pair, params, budgets, (len(plan) - there) // len(todo))
    began = time.perf_counter()
    for number, (turn, setting) in enumerate(plan[there:], start=there + 1):
        repeat, index = turns[turn]
        seed = params.seed + len(params.prompts) * repeat + index
        place = {name: getattr(setting, name) for name in SETTING} | {"prompt": index, "repeat": repeat}
        answer = _generation(pair, params, setting, budgets[setting], index, seed=seed, tokens=params.max_new_tokens)
        lines.append(place | answer)
        if number % len(todo) == 0:
            now = time.perf_counter()
            a_prompt = (now - began) / (turn + 1 - there // len(todo))
            fitting = min(len(turns) - turn - 1, int((end - now) // a_prompt) if end < math.inf else len(turns))
            left = f"about {a_prompt * max(fitting, 0):.0f} s left"
            print(f"prompt {turn + 1} of {len(turns)} · {now - began:.0f} s · {left}", flush=True)
            if fitting <= 0 and turn + 1 < len(turns):
                print(f"{turn + 1} of {len(turns)} prompts fit into {params.minutes:g} minutes", flush=True)
                return


def _warm_up(pair: Pair, params: LiveParams, budgets: dict[Setting, int | AutoBudget], prompts: int) -> None:
    """A few tokens with every setting, so that what is made at first use is there; says how long `prompts` may take."""
    print(f"warming up {len(budgets)} settings", flush=True)
    seconds = 0.0
    for setting, budget in budgets.items():
        began = time.perf_counter()
        _generation(pair, params, setting, budget, 0, seed=params.seed, tokens=WARM_UP_TOKENS)
        seconds += time.perf_counter() - began
    expected = seconds * params.max_new_tokens / WARM_UP_TOKENS
    print(f"a prompt takes about {expected:.0f} s, {prompts} of them {expected * prompts:.0f} s", flush=True)


def _generation(
    pair: Pair, params: LiveParams, setting: Setting, budget: int | AutoBudget, prompt: int, *, seed: int, tokens: int
) -> dict[str, object]:
    """One line of the record without its place: prompt number `prompt` decoded with one setting."""
    chances: list[dict[str, float]] = []
    (answer,) = decode(
        pair,
        params,
        [params.prompts[prompt]],
        strategy=setting.strategy,
        temperature=setting.temperature,
        budget=budget,
        seed=seed,
        tokens=tokens,
        on_step=lambda step: chances.append(_chances(step, sampling_at(params, setting.temperature))),
    )
    return {
        "tokens": len(answer.tokens),
        "rounds": len(answer.steps),
        "decode_ms": answer.decode_ms,
        "prefill_ms": answer.prefill_ms,
        "reason": answer.reason,
        "token_ids": answer.tokens,
        "text": answer.text,
        STEPS: [
            {name: getattr(step, name) for name in ("tree_size", "accepted", "emitted")}
            | {f"{stage}_ms": step.stage_ms[stage] for stage in STAGES}
            | chance
            for step, chance in zip(answer.steps, chances, strict=True)
        ],
    }


def _chances(step: Step, sampling: SamplingParams) -> dict[str, float]:
    """How uncertain the target is after a round's root, and how much of that the tree offers.

    entropy: of the distribution that the first token is drawn from, in nats; offered: its mass on the root's
    children, which is the probability that a first draft is accepted.
    """
    probs = target_probs(step.logits[0, 0], **asdict(sampling))
    children = step.tree.tokens[0, step.tree.parents[0] == 0]
    return {"entropy": float(torch.special.entr(probs).sum()), "offered": min(1.0, float(probs[children].sum()))}
