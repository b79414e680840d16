"""Choose the budget of each request's tree in every round, and back off where drafting does not pay.

The choice depends only on the request's own drafts, its own past rounds and a table of costs measured before, never on
a clock or on other requests, so a text can be decoded again.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from ddtree.decode import STAGES, generate
from ddtree.protocols import DraftModel, TargetModel
from ddtree.sampling import SamplingParams
from ddtree.tree import DraftTree

COST_BUDGETS = (0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
PRIOR_DRAFTS = 8.0  # expected and accepted drafts that a request starts with, so that its first rounds weigh little
BACKOFF_THRESHOLD = 2.0  # tokens behind plain decoding at which a request backs off; also the largest balance kept
RETRY_ALLOWANCE = 0.5  # tokens that a request may lose after a back-off before it backs off again
FIRST_BACKOFF = 16  # rounds; doubled until the balance is 0 or more again


@dataclass(frozen=True, slots=True)
class RoundCost:
    """What a whole round costs (draft, verify and all between) by budget, in milliseconds; linear between budgets."""

    budgets: tuple[int, ...]  # ascending from 0
    ms: tuple[float, ...]  # never falling
    baseline_ms: float  # a round without a draft: plain decoding

    def __post_init__(self) -> None:
        """Raises ValueError for budgets that do not ascend from 0, or costs that fall or are not positive, finite."""
        if self.budgets[:1] != (0,) or any(a >= b for a, b in pairwise(self.budgets)):
            raise ValueError(f"RoundCost.budgets are {self.budgets}; they must ascend from 0.")
        if len(self.ms) != len(self.budgets):
            raise ValueError(f"RoundCost has {len(self.ms)} costs for {len(self.budgets)} budgets; give one for each.")
        if not self.ms[0] > 0 or not all(a <= b < math.inf for a, b in pairwise(self.ms)):
            raise ValueError(f"RoundCost.ms are {self.ms}; they must be positive and never fall as the budget grows.")
        if not 0 < self.baseline_ms < math.inf:
            raise ValueError(
                f"RoundCost.baseline_ms is {self.baseline_ms}; a round without a draft takes a positive time."
            )

    def table(self, device: torch.device | str = "cpu") -> Tensor:
        """float32 [largest budget + 1]: the cost of every budget from 0 on."""
        cost = [self.ms[0]]
        for (left, low), (right, high) in pairwise(zip(self.budgets, self.ms, strict=True)):
            cost += [low + (high - low) * (n - left) / (right - left) for n in range(left + 1, right + 1)]
        return torch.tensor(cost, dtype=torch.float32, device=device)


@dataclass(frozen=True, slots=True)
class AutoBudget:
    """The rule of CaDDTree (arXiv 2606.01813): the number of nodes that maximises (1 + expected drafts) / cost.

    All budgets are searched: the cost of a pass may rise in steps, so the first local maximum need not be the best.
    """

    cost: RoundCost

    @property
    def largest(self) -> int:
        """The budget that trees are built with before they are cut."""
        return self.cost.budgets[-1]

    def start(self, requests: int, device: torch.device | str = "cpu") -> BudgetState:
        """The state of a batch of new requests."""
        in_tokens = [ms / self.cost.baseline_ms for ms in self.cost.table().tolist()]
        return BudgetState(self, AcceptanceRatio.fresh(requests, device), [Backoff(in_tokens) for _ in range(requests)])

    def sizes(self, tree: DraftTree, acceptance_ratio: Tensor) -> Tensor:
        """int64 [bs]: nodes of each tree that are worth their cost, root included; ties go to fewer nodes.

        `acceptance_ratio` float32 [bs] is how many drafts a request accepted for each that its drafter expected.
        """
        tokens = 1 + acceptance_ratio[:, None] * expected_accepted(tree)
        tokens_per_ms = tokens / self.cost.table(tree.tokens.device)[: tree.width]
        return torch.minimum(tokens_per_ms.argmax(dim=1) + 1, tree.sizes)


def expected_accepted(tree: DraftTree) -> Tensor:
    """float32 [bs, q]: drafts among the first i + 1 nodes that the drafter's own probabilities expect to be accepted.

    A node is accepted with the probability of its prefix, so the expectation is the sum of exp(node_logws).
    """
    probs = tree.node_logws.exp()
    probs[:, 0] = 0.0
    return probs.cumsum(dim=1)


@dataclass(slots=True)
class AcceptanceRatio:
    """Accepted over expected drafts of each request so far."""

    expected: Tensor  # float32 [bs]
    accepted: Tensor  # float32 [bs]

    @classmethod
    def fresh(cls, requests: int, device: torch.device | str = "cpu") -> AcceptanceRatio:
        """New requests: the drafter's probabilities are taken as they are, with the weight of PRIOR_DRAFTS drafts."""
        return cls(*(torch.full((requests,), PRIOR_DRAFTS, device=device) for _ in range(2)))

    @property
    def ratio(self) -> Tensor:
        """float32 [bs]."""
        return self.accepted / self.expected

    def update(self, tree: DraftTree, accepted: Tensor) -> None:
        """A round's end: `tree` as it was verified, `accepted` int [bs] drafts of it."""
        self.expected = self.expected + expected_accepted(tree)[:, -1]
        self.accepted = self.accepted + accepted

    def select(self, rows: Tensor) -> None:
        """Keep only these rows, in this order."""
        self.expected, self.accepted = self.expected[rows], self.accepted[rows]


@dataclass(slots=True)
class Backoff:
    """One request's balance of drafting against plain decoding, in tokens; numbers on the host.

    A request that falls BACKOFF_THRESHOLD tokens behind decodes without drafts for `length` rounds, and for twice as
    many after each retry that fails.
    """

    round_cost_in_tokens: Sequence[float]  # by nodes without the root: tokens of plain decoding in such a round's time
    token_balance: float = 0.0
    rounds_left: int = 0  # rounds without drafts still to come
    length: int = FIRST_BACKOFF  # of the next back-off, rounds

    def update(self, size: int, emitted: int) -> None:
        """A round's end: nodes of the tree as it was verified, root included, and the tokens it emitted."""
        if self.rounds_left:
            self.rounds_left -= 1
            return
        gained = emitted - self.round_cost_in_tokens[size - 1]
        self.token_balance = min(BACKOFF_THRESHOLD, self.token_balance + gained)
        if self.token_balance >= 0:
            self.length = FIRST_BACKOFF
        elif self.token_balance < -BACKOFF_THRESHOLD:
            self.rounds_left, self.length = self.length, 2 * self.length
            self.token_balance = RETRY_ALLOWANCE - BACKOFF_THRESHOLD


@dataclass(slots=True)
class BudgetState:
    """The decisions of a batch in progress, each row by its own past."""

    auto: AutoBudget
    acceptance: AcceptanceRatio
    backoffs: list[Backoff]

    @property
    def all_back_off(self) -> bool:
        """No row wants a draft, so the drafter's pass can be left out."""
        return all(backoff.rounds_left for backoff in self.backoffs)

    def cut(self, tree: DraftTree) -> DraftTree:
        """The nodes that are worth their cost; only the root of a row that backs off."""
        sizes = self.auto.sizes(tree, self.acceptance.ratio)
        if any(backoff.rounds_left for backoff in self.backoffs):
            backing_off = torch.tensor([backoff.rounds_left > 0 for backoff in self.backoffs], device=sizes.device)
            sizes = sizes.masked_fill(backing_off, 1)
        return tree.cut(sizes)

    def update(self, tree: DraftTree, accepted: Tensor, sizes: Sequence[int], emitted: Sequence[int]) -> None:
        """A round's end: `tree` as it was verified and the drafts accepted of it (int [bs]).

        `sizes` and `emitted` are each row's nodes and tokens, on the host.
        """
        self.acceptance.update(tree, accepted)
        for backoff, size, tokens in zip(self.backoffs, sizes, emitted, strict=True):
            backoff.update(size, tokens)

    def select(self, rows: Tensor, on_host: Sequence[int]) -> None:
        """Keep only these rows, in this order; `on_host` holds the same numbers."""
        self.acceptance.select(rows)
        self.backoffs = [self.backoffs[row] for row in on_host]


def measure_round_cost(
    target: TargetModel,
    drafter: DraftModel,
    prompts: Sequence[str | Sequence[int]],
    *,
    budgets: Sequence[int] = COST_BUDGETS,
    tokens: int = 24,
    topk_cap: int | None = None,
    temperature: float = 1.0,
    backend: str = "auto",
    on_budget: Callable[[int, float], object] = lambda budget, ms: None,
) -> RoundCost:
    """Time whole rounds at each budget on these models, for `AutoBudget`; seconds to a minute on a CPU.

    The prompts are decoded as one batch with each budget in turn, twice: the first time warms up, the medians are of
    the second. Costs that fall as the budget grows are noise and are smoothed. `budgets` start with 0, which is decoded
    without the drafter and so gives the cost of plain decoding. `on_budget` gets each budget and the median
    milliseconds of its rounds as soon as they are measured.
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
                on_budget(budget, sum(stages[-1] for stages in medians.values()))
    drafting = statistics.median(medians.pop("draft")[1:])  # budget 0 ran without the drafter; a tree cut to 0 did not
    undrafted = smoothed([sum(stages) for stages in zip(*medians.values(), strict=True)])
    return RoundCost(tuple(budgets), tuple(drafting + ms for ms in undrafted), baseline_ms=undrafted[0])


def smoothed(ms: Sequence[float]) -> tuple[float, ...]:
    """The nearest costs (least squares) that never fall as the budget grows, so that noise is taken out."""
    from scipy.optimize import isotonic_regression  # slow to import, and only needed to measure

    return tuple(float(value) for value in isotonic_regression(ms).x)
