"""Adaptive budget: how many nodes of a draft tree are worth a wider verify pass, by expected tokens per millisecond.

Invariant: a request's tree depends on its own drafts, its own past rounds and a table of costs that was measured
before, never on a clock or a neighbour; so its text can be decoded again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from ddtree.tree import DraftTree

PRIOR_DRAFTS = 8.0  # promised and accepted drafts that a request starts with: rounds it takes to sway the trust


@dataclass(frozen=True, slots=True)
class RoundCost:
    """What a whole round costs (draft, verify and all between) by budget, in milliseconds; linear between budgets."""

    budgets: tuple[int, ...]  # ascending from 0
    ms: tuple[float, ...]  # never falling

    def __post_init__(self) -> None:
        """Raises ValueError for budgets that do not ascend from 0, or costs that are not positive or that fall."""
        if self.budgets[:1] != (0,) or any(a >= b for a, b in pairwise(self.budgets)):
            raise ValueError(f"RoundCost.budgets are {self.budgets}; they must ascend from 0.")
        if len(self.ms) != len(self.budgets):
            raise ValueError(f"RoundCost has {len(self.ms)} costs for {len(self.budgets)} budgets; give one for each.")
        if not self.ms[0] > 0 or not all(a <= b < math.inf for a, b in pairwise(self.ms)):
            raise ValueError(f"RoundCost.ms are {self.ms}; they must be positive and never fall as the budget grows.")

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


def smoothed(ms: Sequence[float]) -> tuple[float, ...]:
    """The nearest costs (least squares) that never fall as the budget grows: noise of a measurement taken out."""
    from scipy.optimize import isotonic_regression  # here alone: a server loads its costs ready made

    return tuple(float(value) for value in isotonic_regression(ms).x)
