"""One question to one server as the measurement asks it: a fixed number of tokens, independent draws, one clock."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ddtree.serving.client import Load
from ddtree.workbook.serving.launch import Running
from ddtree.workbook.serving.plan import Planned

Item = TypeVar("Item")
SETTLE_S = 0.02  # a server with overlap runs one more step after a reply; the next server on its GPU starts after that


@dataclass(frozen=True, slots=True)
class Server:
    """A planned server that runs."""

    planned: Planned
    running: Running

    @property
    def name(self) -> str:
        return self.planned.name

    def ask(self, prompts: Sequence[Sequence[int]], *, temperature: float, tokens: int, seeds: Sequence[int]) -> Load:
        """Whole replies of exactly `tokens` tokens, the prompts asked at once.

        DDTREE draws from the seed given for each; the others draw from the engine's own generator, since SGLang reads a
        request's seed only when it is deterministic throughout.
        """
        seeded = self.planned.method == "ddtree" and temperature > 0
        each: list[dict[str, Any]] = [{"sampling_seed": seed} if seeded else {} for seed in seeds]
        load = self.running.client.together(
            prompts, each=each, temperature=temperature, max_new_tokens=tokens, ignore_eos=True
        )
        for reply in load.replies:
            if reply.tokens != tokens:
                raise RuntimeError(f"{self.name} answered {reply.tokens} tokens where {tokens} were asked.")
        time.sleep(SETTLE_S)
        return load


def in_turn(items: Sequence[Item], turn: int) -> Iterator[Item]:
    """All items, each turn starting one further, so that none is always measured first."""
    first = turn % len(items)
    yield from items[first:]
    yield from items[:first]


def filled(prompts: Sequence[Item], batch: int, turn: int) -> list[Item]:
    """`batch` prompts, going round; the next turn goes on where this one ends."""
    return [prompts[(turn * batch + place) % len(prompts)] for place in range(batch)]
