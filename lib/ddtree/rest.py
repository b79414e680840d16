"""Rest: a request whose drafts bring less than they cost decodes one by one for a while, then tries again.

Invariant: whether a request drafts follows from its own rounds and a table of costs, never from a clock or a neighbour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
