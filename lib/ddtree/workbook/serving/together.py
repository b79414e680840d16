"""Several requests at once: a batch goes round all servers before it is asked again, and every batch is a row."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from ddtree.workbook.serving.ask import Server, filled, in_turn


def measure_together(
    servers: Sequence[Server],
    prompts: Sequence[Sequence[int]],
    *,
    temperatures: Sequence[float],
    batches: Sequence[int],
    repeats: int,
    tokens: int,
    seed: int,
) -> list[dict[str, Any]]:
    """One row per server, temperature, batch and repeat: `tokens` and `rounds` are sums over the batch.

    `first_token_s` is the median over a batch of one-token replies asked just before, by the server's own clock.
    """
    rows: list[dict[str, Any]] = []
    turn = 0
    for temperature in temperatures:
        for batch in batches:
            for repeat in range(repeats):
                asked = filled(prompts, batch, repeat)
                seeds = range(seed + turn * max(batches), seed + turn * max(batches) + batch)
                for server in in_turn(servers, turn):
                    first = server.ask(asked, temperature=temperature, tokens=1, seeds=seeds)
                    load = server.ask(asked, temperature=temperature, tokens=tokens, seeds=seeds)
                    rounds = [reply.rounds for reply in load.replies if reply.rounds is not None]
                    rows.append(
                        {
                            **server.planned.keys(),
                            "temperature": temperature,
                            "batch": batch,
                            "repeat": repeat,
                            "tokens": sum(reply.tokens for reply in load.replies),
                            "wall_s": load.wall_s,
                            "first_token_s": statistics.median(
                                first.wall_s if reply.server_s is None else reply.server_s for reply in first.replies
                            ),
                            "rounds": sum(rounds) if rounds else None,
                            "requests": batch,
                        }
                    )
                turn += 1
    return rows
