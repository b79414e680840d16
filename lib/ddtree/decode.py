"""The decode loop: draft, build, compile, verify, sample and commit until every request is done.

The strategies "autoregressive" (a root-only tree), "chain" (the top token of every position) and "tree" (DDTree) take
the same path. A request's text does not depend on its neighbours in the batch.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar, cast, get_args

import torch
from torch import Tensor

from ddtree.commit import Commit, finish_step, plan_commit
from ddtree.protocols import BudgetPolicy, DraftModel, TargetModel
from ddtree.retrieve import RetrieveTables, compile_retrieve
from ddtree.sampling import SamplingParams, step_coins
from ddtree.tree import DraftTree, build_tree
from ddtree.verify import VerifyResult, sample_tree

T = TypeVar("T")
Strategy = Literal["autoregressive", "chain", "tree"]
STAGES = ("draft", "build", "compile", "verify", "sample", "commit")
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
    """The state of one round, passed to `on_step`: all that the rows of the batch read and decided."""

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
    target: TargetModel,
    drafter: DraftModel | None,
    prompts: Sequence[str | Sequence[int]],
    *,
    strategy: Strategy,
    sampling: SamplingParams | Sequence[SamplingParams],
    max_new_tokens: int | Sequence[int] = 64,
    budget: int | BudgetPolicy = 16,
    topk_cap: int | None = None,
    draft_temperature: float | Literal["match"] = 1.0,
    seed: int | Sequence[int | None] | None = 0,
    backend: str = "auto",
    on_step: Callable[[Step], None] | None = None,
) -> list[Generation]:
    """Decode a batch of prompts, each as if it were alone.

    The first root is a prompt's last token, so the first round is like any other.

    Args:
        prompts: user messages (encoded by the target), or lists of token ids taken as they are.
        sampling, max_new_tokens, seed: one for all requests, or one each. A request's coins depend only on its own seed
            and prefix, so an int gives every request the same stream; None draws a fresh seed.
        budget, topk_cap: of the draft tree; "chain" and "autoregressive" do not read them. An `AutoBudget` chooses the
            nodes of each request's tree round by round, and backs off where drafting costs more than it gains.
        draft_temperature: divides the draft logits; "match" is the request's own (1.0 for a greedy one, whose
            tree would otherwise be a chain).
        on_step: called after each round with its state.

    Raises ValueError for a parameter out of range or an empty prompt, and what `sample_tree` raises.
    """
    requests = _requests(target, prompts, sampling, max_new_tokens, seed)
    plan = _plan(drafter, strategy, budget, topk_cap, draft_temperature, backend)
    if not requests:
        return []
    batch = _Batch(target, drafter, requests, plan)
    while batch.active:
        step = batch.round()
        if on_step is not None:
            on_step(step)
        batch.drop_finished()
    return batch.finish()


@dataclass(frozen=True, slots=True)
class _Request:
    prompt: list[int]
    sampling: SamplingParams
    limit: int  # new tokens
    seed: int


@dataclass(frozen=True, slots=True)
class _Plan:
    """How every round of a call drafts."""

    depth: int  # positions drafted; 0 decodes without the drafter
    budget: int
    topk_cap: int | None
    policy: BudgetPolicy | None
    draft_temperature: float | Literal["match"]
    backend: str

    @property
    def width(self) -> int:
        return 1 if self.depth == 0 else self.budget + 1


def _requests(
    target: TargetModel,
    prompts: Sequence[str | Sequence[int]],
    sampling: SamplingParams | Sequence[SamplingParams],
    max_new_tokens: int | Sequence[int],
    seed: int | Sequence[int | None] | None,
) -> list[_Request]:
    ids = [target.encode(prompt) if isinstance(prompt, str) else list(prompt) for prompt in prompts]
    if any(not prompt for prompt in ids):
        raise ValueError(f"prompt {ids.index([])} is empty; the last prompt token is the first tree's root.")
    params = _one_each("sampling", sampling, SamplingParams, len(ids))
    limits = _one_each("max_new_tokens", max_new_tokens, int, len(ids))
    seeds = _one_each("seed", _drawn(seed, len(ids)), int, len(ids))
    if limits and min(limits) < 1:
        raise ValueError(f"max_new_tokens is {min(limits)}; ask for at least 1 token.")
    return [_Request(*values) for values in zip(ids, params, limits, seeds, strict=True)]


def _plan(
    drafter: DraftModel | None,
    strategy: Strategy,
    budget: int | BudgetPolicy,
    topk_cap: int | None,
    draft_temperature: float | Literal["match"],
    backend: str,
) -> _Plan:
    if strategy not in get_args(Strategy):
        raise ValueError(f'strategy is "{strategy}"; it must be one of {", ".join(get_args(Strategy))}.')
    if strategy != "autoregressive" and drafter is None:
        raise ValueError(f'strategy "{strategy}" needs a drafter; only "autoregressive" works without one.')
    if isinstance(budget, str):
        raise ValueError(
            f'budget is "{budget}"; it must be a whole number, or an AutoBudget made with measure_round_cost.'
        )
    if isinstance(budget, int) and budget < 0:
        raise ValueError(f"budget is {budget}; it counts nodes without the root, so it must be 0 or more.")
    if strategy == "autoregressive" or drafter is None:
        return _Plan(0, 0, topk_cap, None, draft_temperature, backend)
    if strategy == "chain":
        return _Plan(drafter.depth, drafter.depth, 1, None, draft_temperature, backend)
    if isinstance(budget, int):
        return _Plan(min(drafter.depth, budget), budget, topk_cap, None, draft_temperature, backend)
    return _Plan(min(drafter.depth, budget.largest), budget.largest, topk_cap, budget, draft_temperature, backend)


class _Batch:
    """The requests still decoding, row by row, and the answers of all."""

    def __init__(
        self, target: TargetModel, drafter: DraftModel | None, requests: Sequence[_Request], plan: _Plan
    ) -> None:
        device = target.device
        self.target, self.requests, self.plan = target, requests, plan
        self.timer = StageTimer(device)
        self.answers = [Generation(prompt=request.prompt) for request in requests]
        self.active = list(range(len(requests)))  # the request of each row
        self.number = 0  # of the round
        longest = max(request.limit for request in requests)
        self.session = target.open([request.prompt for request in requests], room=longest + plan.width)
        self.draft_session = None
        if plan.depth and drafter is not None:
            features, lengths = self.session.prompt_features, self.session.prompt_lengths
            self.draft_session = drafter.open(features, lengths, room=longest)
        self.budgets = plan.policy.start(len(requests), device) if plan.policy is not None else None
        self.roots = torch.tensor([request.prompt[-1] for request in requests], device=device)
        temperatures = [draft_temperature_of(plan.draft_temperature, request.sampling) for request in requests]
        self.draft_temperatures = torch.tensor(temperatures, device=device)
        self.prefill: dict[str, float] = {}
        self.timer.record(self.prefill, "prefill")

    def round(self) -> Step:
        """One round of all rows: draft, build, compile, verify, sample, commit."""
        times: dict[str, float] = {}
        rows = [self.requests[request] for request in self.active]
        number, prefix_len = self.number, self.session.prefix_len
        self.timer.restart()
        tree = self._draft_tree(times)

        tables = compile_retrieve(tree)
        lengths = [len(row.prompt) - 1 + len(self.answers[i].tokens) for row, i in zip(rows, self.active, strict=True)]
        coins, final_coins = step_coins([row.seed for row in rows], lengths, tree.width, device=self.target.device)
        mask = self.session.mask(tree)
        self.timer.record(times, "compile")

        logits = self.session.verify(tree, mask)
        self.timer.record(times, "verify")

        sampling = [row.sampling for row in rows]
        result = sample_tree(tree, tables, logits, sampling, coins, final_coins, backend=self.plan.backend)
        self.timer.record(times, "sample")

        commit = plan_commit(tree, result, prefix_len)
        self._commit(tree, result, commit, times)
        self.timer.record(times, "commit")
        return Step(number, list(self.active), prefix_len, tree, tables, logits, coins, final_coins, result, commit)

    def _draft_tree(self, times: dict[str, float]) -> DraftTree:
        plan = self.plan
        if self.draft_session is None or (self.budgets is not None and self.budgets.all_back_off):
            times["draft"] = times["build"] = 0.0
            return build_tree(torch.zeros(len(self.roots), 0, 1, device=self.roots.device), self.roots, budget=0)
        draft_logits = self.draft_session.draft(self.roots, plan.depth)
        self.timer.record(times, "draft")
        tree = build_tree(
            draft_logits,
            self.roots,
            budget=plan.budget,
            topk_cap=plan.topk_cap,
            draft_temperature=self.draft_temperatures,
        )
        if self.budgets is not None:
            tree = self.budgets.cut(tree)
        self.timer.record(times, "build")
        return tree

    def _commit(self, tree: DraftTree, result: VerifyResult, commit: Commit, times: dict[str, float]) -> None:
        """Keep KV, features and tokens of the accepted path; reading the tokens waits for the device."""
        on_host = torch.cat([tree.sizes[:, None], commit.lengths[:, None], commit.tokens], dim=1).tolist()
        sizes, lengths = [row[0] for row in on_host], [row[1] for row in on_host]
        features = self.session.commit(commit, lengths)
        if self.draft_session is not None:
            self.draft_session.extend(features, commit.lengths, lengths)
        if self.budgets is not None:
            self.budgets.update(tree, result.accept_count, sizes, lengths)
        for request, row in zip(self.active, on_host, strict=True):
            size, length, *tokens = row
            self._append(request, tokens[:length], size, times)
        self.roots, self.number = commit.next_root, self.number + 1

    def _append(self, request: int, tokens: list[int], size: int, times: dict[str, float]) -> None:
        answer = self.answers[request]
        remaining = self.requests[request].limit - len(answer.tokens)
        kept, answer.reason = finish_step(tokens, eos_ids=self.target.eos_ids, remaining=remaining)
        answer.tokens += kept
        accepted = min(len(tokens) - 1, len(kept))
        answer.steps.append(StepRecord(size, accepted, len(kept), len(self.active), times))

    def drop_finished(self) -> None:
        """Shrink the batch to the requests that go on."""
        running = [row for row, request in enumerate(self.active) if self.answers[request].reason is None]
        if len(running) == len(self.active):
            return
        rows = torch.tensor(running, dtype=torch.int64, device=self.target.device)
        self.active = [self.active[row] for row in running]
        self.roots, self.draft_temperatures = self.roots[rows], self.draft_temperatures[rows]
        self.session.select(rows)
        if self.budgets is not None:
            self.budgets.select(rows, running)
        if self.draft_session is not None:
            self.draft_session.select(rows)

    def finish(self) -> list[Generation]:
        self.timer.stop()
        for answer in self.answers:
            answer.text = self.target.decode(answer.tokens)
            answer.prefill_ms = self.prefill["prefill"]
        return self.answers


class StageTimer:
    """Milliseconds of the stages of a round, recorded under their names.

    On CUDA the times are those of the device's events, which `stop` waits for, so that timing costs a round nothing.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_cuda = device.type == "cuda"
        self._spans: list[tuple[dict[str, float], str, torch.cuda.Event, torch.cuda.Event]] = []
        self.restart()

    def restart(self) -> None:
        """The next stage starts here."""
        self._last = self._now()

    def record(self, times: dict[str, float], stage: str) -> None:
        """Set `times[stage]` to the milliseconds since the last record or restart; on CUDA, once stopped."""
        last, self._last = self._last, self._now()
        if isinstance(last, float) and isinstance(self._last, float):
            times[stage] = 1e3 * (self._last - last)
        else:
            times[stage] = 0.0
            self._spans.append((times, stage, last, self._last))  # type: ignore[arg-type]

    def stop(self) -> None:
        """Wait for the device and read its events."""
        if self._spans:
            torch.cuda.synchronize()
        for times, stage, start, end in self._spans:
            times[stage] = start.elapsed_time(end)

    def _now(self) -> float | torch.cuda.Event:
        if not self._on_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def draft_temperature_of(choice: float | Literal["match"], params: SamplingParams) -> float:
    """The number that a draft temperature means for one request; "match" is 1.0 for a greedy one."""
    if choice != "match":
        return float(choice)
    return 1.0 if params.greedy else params.temperature


def _drawn(seed: int | Sequence[int | None] | None, requests: int) -> int | Sequence[int]:
    """The seeds, with a fresh one for each None."""
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
