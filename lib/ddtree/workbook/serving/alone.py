"""Requests one at a time: each prompt goes round all servers before the next, and every reply is a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ddtree.workbook.serving.ask import Server, in_turn


@dataclass(slots=True)
class Alone:
    """Rows of the record, and what later parts compare."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    histograms: list[dict[str, Any]] = field(default_factory=list)
    greedy: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)  # (server, prompt) to ids at T = 0


def measure_alone(
    servers: Sequence[Server],
    prompts: Sequence[Sequence[int]],
    *,
    temperatures: Sequence[float],
    tokens: int,
    seed: int,
) -> Alone:
    """`first_token_s` is the time of a one-token reply asked just before, so that both come whole.

    `histograms` count the verify passes that gave 1, 2, ... tokens, by the server's own count; a server that counts
    none has no row.
    """
    found = Alone()
    for place, temperature in enumerate(temperatures):
        passes: dict[str, Counter[int]] = {server.name: Counter() for server in servers}
        for number, prompt in enumerate(prompts):
            own_seed = seed + place * len(prompts) + number
            for server in in_turn(servers, place + number):
                first = server.ask([prompt], temperature=temperature, tokens=1, seeds=[own_seed])
                load = server.ask([prompt], temperature=temperature, tokens=tokens, seeds=[own_seed])
                (reply,) = load.replies
                found.rows.append(
                    {
                        **server.planned.keys(),
                        "temperature": temperature,
                        "prompt": number,
                        "tokens": reply.tokens,
                        "total_s": load.wall_s,
                        "first_token_s": first.wall_s,
                        "rounds": reply.rounds,
                        "acceptance": reply.acceptance,
                    }
                )
                for accepted, times in enumerate(reply.passes or ()):
                    passes[server.name][accepted + 1] += times
                if temperature == 0:
                    found.greedy[server.name, number] = reply.ids
        found.histograms += _histograms(servers, temperature, passes)
    return found


def _histograms(
    servers: Sequence[Server], temperature: float, passes: Mapping[str, Mapping[int, int]]
) -> list[dict[str, Any]]:
    return [
        {
            **server.planned.keys(),
            "temperature": temperature,
            "counts": {str(tokens): times for tokens, times in sorted(passes[server.name].items()) if times},
        }
        for server in servers
        if any(passes[server.name].values())
    ]
