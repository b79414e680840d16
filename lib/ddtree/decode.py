"""The decode loop: draft, build, compile, verify, sample and commit until every request is done.

Three drafting strategies (autoregressive, chain, tree) run through one path."""

from __future__ import annotations

import secrets
import statistics
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar, cast, get_args

import torch
from torch import Tensor

from ddtree.adaptive_budget import AutoBudget, RoundCost, smoothed
from ddtree.commit import Commit, finish_step, plan_commit
from ddtree.protocols import AnyDrafter, AnyTarget
from ddtree.retrieve import RetrieveTables, compile_retrieve
from ddtree.sampling import SamplingParams, step_coins
from ddtree.tree import DraftTree, build_tree
from ddtree.verify import VerifyResult, sample_tree


class StageClock:
    """Milliseconds of stages, each entered into its round's record under its name.

    On CUDA the device's own events are read, and `stop` waits for them: a lap costs a round nothing.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_cuda = device.type == "cuda"
        self._laps: list[tuple[dict[str, float], str, torch.cuda.Event, torch.cuda.Event]] = []
        self.restart()

    def restart(self) -> None:
        """What comes until the next lap begins here."""
        self._last = self._now()

    def lap(self, times: dict[str, float], stage: str) -> None:
        """Enter the milliseconds since the last lap or restart into `times[stage]`; on CUDA, once stopped."""
        last, self._last = self._last, self._now()
        if isinstance(last, float) and isinstance(self._last, float):
            times[stage] = 1e3 * (self._last - last)
        else:
            times[stage] = 0.0
            self._laps.append((times, stage, last, self._last))  # type: ignore[arg-type]

    def stop(self) -> None:
        """Wait for the device and enter what its events say."""
        if self._laps:
            torch.cuda.synchronize()
        for times, stage, start, end in self._laps:
            times[stage] = start.elapsed_time(end)

    def _now(self) -> float | torch.cuda.Event:
        if not self._on_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


T = TypeVar("T")
Strategy = Literal["autoregressive", "chain", "tree"]
STAGES = ("draft", "build", "compile", "verify", "sample", "commit")
COST_BUDGETS = (0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
FORWARDS = ("draft", "verify")  # the two model passes; everything else is overhead


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What one round did for one request; counts are of tokens kept, times of the whole batch."""

    tree_size: int  # nodes, root included
    accepted: int  # drafts kept
    emitted: int  # tokens kept: drafts and, unless cut off, the final token
    batch_size: int
    stage_ms: dict[str, float]  # by STAGES, milliseconds


@dataclass(slots=True)
class Generation:
    """One request's answer and the record of its rounds."""

    prompt: list[int]
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    steps: list[StepRecord] = field(default_factory=list)
    reason: str | None = None  # "eos" or "length"
    prefill_ms: float = 0.0

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens per verify pass."""
        return len(self.tokens) / len(self.steps) if self.steps else 0.0

    @property
    def decode_ms(self) -> float:
        return sum(sum(step.stage_ms.values()) for step in self.steps)


@dataclass(frozen=True, slots=True)
class Step:
    """A round laid open for `on_step`: everything the batch's rows saw and decided."""

    number: int
    requests: list[int]  # which prompt each batch row belongs to
    prefix_len: Tensor  # int64 [bs], before the commit
    tree: DraftTree
    tables: RetrieveTables
    logits: Tensor  # [bs, q, V]
    coins: Tensor
    final_coins: Tensor
    result: VerifyResult
    commit: Commit


@torch.inference_mode()
def generate(
    target: AnyTarget,
    drafter: AnyDrafter | None,
    prompts: Sequence[str | Sequence[int]],
    *,
    strategy: Strategy,
    sampling: SamplingParams | Sequence[SamplingParams],
    max_new_tokens: int | Sequence[int] = 64,
    budget: int | Literal["auto"] | AutoBudget = 16,
    topk_cap: int | None = None,
    draft_temperature: float | Literal["match"] = 1.0,
    seed: int | Sequence[int | None] | None = 0,
    backend: str = "auto",
    on_step: Callable[[Step], None] | None = None,
) -> list[Generation]:
    """Decode a batch of prompts, each as if it stood alone.

    The first root is a prompt's last token, so the first round is like any other. "autoregressive" is a tree of
    the root alone, "chain" the drafter's likeliest token at every position (linear DFlash), "tree" the DDTree.

    Args:
        prompts: user messages (encoded by the target), or lists of token ids taken as they are.
        sampling, max_new_tokens, seed: one for all requests, or one each. A request's coins depend on its own seed
            and step alone, so an int gives every request the same coins; None draws a fresh seed.
        budget, topk_cap: of the draft tree; "chain" and "autoregressive" do not read them. An AutoBudget chooses the
            nodes of each request's tree round by round, and none for a while where drafting costs more than it
            brings; "auto" measures the cost that it needs at every call.
        draft_temperature: divides the draft logits; "match" is the request's own (1.0 for a greedy one, whose
            tree would otherwise be a chain).
        on_step: called after each round with everything it saw.

    Raises ValueError for a parameter out of range or an empty prompt, and what `sample_tree` raises.
    """
    if strategy not in get_args(Strategy):
        raise ValueError(f'strategy is "{strategy}"; it must be one of {", ".join(get_args(Strategy))}.')
    if strategy != "autoregressive" and drafter is None:
        raise ValueError(f'strategy "{strategy}" needs a drafter; only "autoregressive" goes without.')
    if not prompts:
        return []
    ids = [target.encode(prompt) if isinstance(prompt, str) else list(prompt) for prompt in prompts]
    if any(not prompt for prompt in ids):
        raise ValueError(f"prompt {ids.index([])} is empty; the last prompt token is the first tree's root.")
    params = _one_each("sampling", sampling, SamplingParams, len(ids))
    limits = _one_each("max_new_tokens", max_new_tokens, int, len(ids))
    seeds = _one_each("seed", _drawn(seed, len(ids)), int, len(ids))
    if min(limits) < 1:
        raise ValueError(f"max_new_tokens is {min(limits)}; ask for at least 1 token.")

    depth = 0 if strategy == "autoregressive" or drafter is None else drafter.depth
    auto = None
    if strategy == "chain":
        budget, topk_cap = depth, 1
    elif not isinstance(budget, int):
        if strategy == "tree" and drafter is not None:
            auto = _chosen(budget, target, drafter, ids, topk_cap, backend)
        budget = auto.largest if auto else 0
    if budget < 0:
        raise ValueError(f"budget is {budget}; it counts nodes beside the root, so it must be 0 or more.")
    depth = min(depth, budget)
    width = 1 if depth == 0 else budget + 1
    draft_temperatures = torch.tensor(
        [draft_temperature_of(draft_temperature, p) for p in params], device=target.device
    )

    clock = StageClock(target.device)
    session = target.open(ids, room=max(limits) + width)
    draft_session = None
    if depth and drafter is not None:
        draft_session = drafter.open(session.prompt_features, session.prompt_lengths, room=max(limits))
    done = [Generation(prompt=prompt) for prompt in ids]
    prefill: dict[str, float] = {}
    clock.lap(prefill, "prefill")

    active = list(range(len(ids)))
    choices = auto.start(len(ids), target.device) if auto is not None else None
    roots = torch.tensor([prompt[-1] for prompt in ids], device=target.device)
    number = 0
    while active:
        times: dict[str, float] = {}
        clock.restart()
        if draft_session is None or (choices is not None and choices.all_rest):
            tree = _root_alone(roots)
            times["draft"] = times["build"] = 0.0
        else:
            draft_logits = draft_session.draft(roots, depth)
            clock.lap(times, "draft")
            tree = build_tree(
                draft_logits, roots, budget=budget, topk_cap=topk_cap, draft_temperature=draft_temperatures
            )
            if choices is not None:
                tree = choices.cut(tree)
            clock.lap(times, "build")
        tables = compile_retrieve(tree)
        coins, final_coins = step_coins(
            [seeds[r] for r in active], [number] * len(active), tree.width, device=target.device
        )
        mask = session.mask(tree)
        clock.lap(times, "compile")
        logits = session.verify(tree, mask)
        clock.lap(times, "verify")
        result = sample_tree(tree, tables, logits, [params[r] for r in active], coins, final_coins, backend=backend)
        clock.lap(times, "sample")
        prefix_len = session.prefix_len
        commit = plan_commit(tree, result, prefix_len)
        emitted, lengths, sizes = _on_host(commit, tree)
        features = session.commit(commit, lengths)
        if draft_session is not None:
            draft_session.extend(features, commit.lengths, lengths)
        if choices is not None:
            choices.update(tree, result.accept_count, sizes, lengths)
        running = _keep_tokens(done, active, emitted, sizes, limits, target.eos_ids, times)
        clock.lap(times, "commit")
        if on_step is not None:
            on_step(Step(number, list(active), prefix_len, tree, tables, logits, coins, final_coins, result, commit))
        roots, number = commit.next_root, number + 1
        if len(running) < len(active):
            rows = torch.tensor(running, dtype=torch.int64, device=target.device)
            active = [active[row] for row in running]
            roots, draft_temperatures = roots[rows], draft_temperatures[rows]
            session.select(rows)
            if choices is not None:
                choices.select(rows, running)
            if draft_session is not None:
                draft_session.select(rows)
    clock.stop()
    for generation in done:
        generation.text = target.decode(generation.tokens)
        generation.prefill_ms = prefill["prefill"]
    return done


def _chosen(
    budget: Literal["auto"] | AutoBudget,
    target: AnyTarget,
    drafter: AnyDrafter,
    prompts: Sequence[Sequence[int]],
    topk_cap: int | None,
    backend: str,
) -> AutoBudget:
    if isinstance(budget, AutoBudget):
        return budget
    if budget != "auto":
        raise ValueError(f'budget is {budget!r}; it must be a whole number, "auto" or an AutoBudget.')
    return AutoBudget(measure_round_cost(target, drafter, prompts, topk_cap=topk_cap, backend=backend))


def measure_round_cost(
    target: AnyTarget,
    drafter: AnyDrafter,
    prompts: Sequence[str | Sequence[int]],
    *,
    budgets: Sequence[int] = COST_BUDGETS,
    tokens: int = 24,
    topk_cap: int | None = None,
    temperature: float = 1.0,
    backend: str = "auto",
) -> RoundCost:
    """Time whole rounds at each budget on these very models, for `AutoBudget`; a few seconds on a CPU.

    The prompts are decoded as one batch under each budget in turn, twice: the first time warms up, the medians are of
    the second. Costs that fall as the budget grows are noise and levelled out. `budgets` begin with 0, which is decoded
    without the drafter and so gives the cost of a round alone.
    """
    medians: dict[str, list[float]] = {}
    for timed in (False, True):
        for budget in budgets:
            answers = generate(
                target,
                drafter,
                prompts,
                strategy="tree",
                sampling=SamplingParams(temperature),
                max_new_tokens=tokens if timed else 4,
                budget=budget,
                topk_cap=topk_cap,
                backend=backend,
            )
            if timed:
                rounds = [step.stage_ms for step in max((answer.steps for answer in answers), key=len)]
                for stage in STAGES:
                    medians.setdefault(stage, []).append(statistics.median(times[stage] for times in rounds))
    drafting = statistics.median(medians.pop("draft")[1:])  # a budget of 0 was decoded without; here it is chosen after
    undrafted = smoothed([sum(stages) for stages in zip(*medians.values(), strict=True)])
    return RoundCost(tuple(budgets), tuple(drafting + ms for ms in undrafted), alone_ms=undrafted[0])


def _on_host(commit: Commit, tree: DraftTree) -> tuple[list[list[int]], list[int], list[int]]:
    """Each row's tokens, how many they are, and its tree's size; reading them is what waits for the device."""
    rows = torch.cat([tree.sizes[:, None], commit.lengths[:, None], commit.tokens], dim=1).tolist()
    return [row[2 : 2 + row[1]] for row in rows], [row[1] for row in rows], [row[0] for row in rows]


def _keep_tokens(
    done: list[Generation],
    active: Sequence[int],
    emitted: Sequence[Sequence[int]],
    sizes: Sequence[int],
    limits: Sequence[int],
    eos_ids: Collection[int],
    times: dict[str, float],
) -> list[int]:
    """Append each request's kept tokens and record; returns the batch rows that go on."""
    running = []
    for row, request in enumerate(active):
        generation = done[request]
        remaining = limits[request] - len(generation.tokens)
        kept, generation.reason = finish_step(emitted[row], eos_ids=eos_ids, remaining=remaining)
        generation.tokens += kept
        drafts = min(len(emitted[row]) - 1, len(kept))
        generation.steps.append(StepRecord(sizes[row], drafts, len(kept), len(active), times))
        if generation.reason is None:
            running.append(row)
    return running


def _root_alone(roots: Tensor) -> DraftTree:
    return build_tree(torch.zeros(roots.shape[0], 0, 1, device=roots.device), roots, budget=0)


def draft_temperature_of(choice: float | Literal["match"], params: SamplingParams) -> float:
    """The number behind a draft temperature: itself, or the request's own; 1.0 for "match" with a greedy one."""
    if choice != "match":
        return float(choice)
    return 1.0 if params.greedy else params.temperature


def _drawn(seed: int | Sequence[int | None] | None, requests: int) -> int | Sequence[int]:
    """The seeds with a fresh one for each None."""
    if isinstance(seed, int):
        return seed
    return [secrets.randbits(63) if one is None else one for one in ([None] * requests if seed is None else seed)]


def _one_each(name: str, value: T | Sequence[T], kind: type[T], requests: int) -> list[T]:
    if isinstance(value, kind):
        return [value] * requests
    values = list(cast("Sequence[T]", value))
    if len(values) != requests:
        raise ValueError(f"{name} has {len(values)} values for {requests} prompts; give one for all, or one each.")
    return values
