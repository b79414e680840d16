"""Choose the budget of each request's tree in every round, and back off where drafting does not pay.

The choice depends only on the request's own drafts, its own past rounds and a table of costs measured before, never on
a clock or on other requests, so a text can be decoded again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from ddtree.tree import DraftTree

DEBT = 2.0  # tokens behind plain decoding at which a request rests; further ahead than this is forgotten
STAKE = 0.5  # tokens that it may then lose, after each rest, before it rests again
FIRST_REST = 16  # rounds; doubled until drafting has paid the debt back


@dataclass(slots=True)
class Rest:
    """One request's account of drafting against plain decoding, in tokens; numbers on the host."""

    prices: Sequence[float]  # by nodes beside the root: tokens that plain decoding gives in such a round's time
    surplus: float = 0.0
    left: int = 0  # rounds still to rest
    length: int = FIRST_REST  # of the next rest, rounds

    def update(self, size: int, emitted: int) -> None:
        """A round's end: nodes of the tree as it was verified, root included, and the tokens that came of it."""
        if self.left:
            self.left -= 1
            return
        self.surplus = min(DEBT, self.surplus + emitted - self.prices[size - 1])
        if self.surplus >= 0:
            self.length = FIRST_REST
        elif self.surplus < -DEBT:
            self.left, self.length = self.length, 2 * self.length
            self.surplus = STAKE - DEBT


PRIOR_DRAFTS = 8.0  # promised and accepted drafts that a request starts with: rounds it takes to sway the trust


@dataclass(frozen=True, slots=True)
class RoundCost:
    """What a whole round costs (draft, verify and all between) by budget, in milliseconds; linear between budgets."""

    budgets: tuple[int, ...]  # ascending from 0
    ms: tuple[float, ...]  # never falling
    alone_ms: float  # a round that drafts nothing: plain decoding

    def __post_init__(self) -> None:
        """Raises ValueError for budgets that do not ascend from 0, or costs that fall or are not positive, finite."""
        if self.budgets[:1] != (0,) or any(a >= b for a, b in pairwise(self.budgets)):
            raise ValueError(f"RoundCost.budgets are {self.budgets}; they must ascend from 0.")
        if len(self.ms) != len(self.budgets):
            raise ValueError(f"RoundCost has {len(self.ms)} costs for {len(self.budgets)} budgets; give one for each.")
        if not self.ms[0] > 0 or not all(a <= b < math.inf for a, b in pairwise(self.ms)):
            raise ValueError(f"RoundCost.ms are {self.ms}; they must be positive and never fall as the budget grows.")
        if not 0 < self.alone_ms < math.inf:
            raise ValueError(f"RoundCost.alone_ms is {self.alone_ms}; a round without a draft takes a positive time.")

    def table(self, device: torch.device | str = "cpu") -> Tensor:
        """float32 [largest budget + 1]: the cost of every budget from 0 on."""
        cost = [self.ms[0]]
        for (left, low), (right, high) in pairwise(zip(self.budgets, self.ms, strict=True)):
            cost += [low + (high - low) * (n - left) / (right - left) for n in range(left + 1, right + 1)]
        return torch.tensor(cost, dtype=torch.float32, device=device)


@dataclass(frozen=True, slots=True)
class AutoBudget:
    """The rule of CaDDTree (arXiv 2606.01813): as many nodes as make (1 + expected drafts) / cost largest.

    Searched over all budgets, since the cost of a pass may rise in steps, where the first fall is not the last rise.
    """

    cost: RoundCost

    @property
    def largest(self) -> int:
        """The budget that trees are built with before they are cut."""
        return self.cost.budgets[-1]

    def start(self, requests: int, device: torch.device | str = "cpu") -> Choices:
        """For a batch of requests without a past."""
        prices = [ms / self.cost.alone_ms for ms in self.cost.table().tolist()]
        return Choices(self, Trust.fresh(requests, device), [Rest(prices) for _ in range(requests)])

    def sizes(self, tree: DraftTree, trust: Tensor) -> Tensor:
        """int64 [bs]: nodes of each tree that are worth their cost, root included; of equal worth the fewest.

        `trust` float32 [bs] is how many drafts a request accepted for each that its drafter promised.
        """
        expected = 1 + trust[:, None] * promised(tree)
        worth = expected / self.cost.table(tree.tokens.device)[: tree.width]
        return torch.minimum(worth.argmax(dim=1) + 1, tree.sizes)


def promised(tree: DraftTree) -> Tensor:
    """float32 [bs, q]: drafts that the first i + 1 nodes hold accepted by the drafter's own probabilities.

    A node is accepted with the probability of its prefix, so the expectation is the sum of exp(node_logws).
    """
    weights = tree.node_logws.exp()
    weights[:, 0] = 0.0
    return weights.cumsum(dim=1)


@dataclass(slots=True)
class Trust:
    """Accepted over promised drafts of each request so far: how far its drafter's probabilities can be believed."""

    promised: Tensor  # float32 [bs]
    accepted: Tensor  # float32 [bs]

    @classmethod
    def fresh(cls, requests: int, device: torch.device | str = "cpu") -> Trust:
        """Requests without a past: believed to the letter."""
        return cls(*(torch.full((requests,), PRIOR_DRAFTS, device=device) for _ in range(2)))

    @property
    def ratio(self) -> Tensor:
        """float32 [bs]."""
        return self.accepted / self.promised

    def update(self, tree: DraftTree, accepted: Tensor) -> None:
        """A round's end: `tree` as it was verified, `accepted` int [bs] drafts of it."""
        self.promised = self.promised + promised(tree)[:, -1]
        self.accepted = self.accepted + accepted

    def select(self, rows: Tensor) -> None:
        """Keep these rows alone, in this order."""
        self.promised, self.accepted = self.promised[rows], self.accepted[rows]


@dataclass(slots=True)
class Choices:
    """What a batch in progress decides round by round, each row by its own past."""

    auto: AutoBudget
    trust: Trust
    rests: list[Rest]

    @property
    def all_rest(self) -> bool:
        """No row wants a draft, so that the drafter's pass can be left out."""
        return all(rest.left for rest in self.rests)

    def cut(self, tree: DraftTree) -> DraftTree:
        """The nodes that are worth their cost; of a row that rests the root alone, as if it had not been drafted."""
        sizes = self.auto.sizes(tree, self.trust.ratio)
        if any(rest.left for rest in self.rests):
            resting = torch.tensor([rest.left > 0 for rest in self.rests], device=sizes.device)
            sizes = sizes.masked_fill(resting, 1)
        return tree.cut(sizes)

    def update(self, tree: DraftTree, accepted: Tensor, sizes: Sequence[int], emitted: Sequence[int]) -> None:
        """A round's end: `tree` as it was verified and the drafts accepted of it (int [bs]).

        `sizes` and `emitted` are each row's nodes and tokens, on the host.
        """
        self.trust.update(tree, accepted)
        for rest, size, tokens in zip(self.rests, sizes, emitted, strict=True):
            rest.update(size, tokens)

    def select(self, rows: Tensor, on_host: Sequence[int]) -> None:
        """Keep these rows alone, in this order; `on_host` holds the same numbers."""
        self.trust.select(rows)
        self.rests = [self.rests[row] for row in on_host]


def smoothed(ms: Sequence[float]) -> tuple[float, ...]:
    """The nearest costs (least squares) that never fall as the budget grows: noise of a measurement taken out."""
    from scipy.optimize import isotonic_regression  # here alone: a server loads its costs ready made

    return tuple(float(value) for value in isotonic_regression(ms).x)
