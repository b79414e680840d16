"""Many answers to one prompt: how many are different, which a server that quietly decodes greedily would fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddtree.workbook.serving.ask import Server

TOKENS = 32


def measure_diversity(
    servers: Sequence[Server],
    prompt: Sequence[int],
    *,
    temperatures: Sequence[float],
    samples: int,
    at_once: int,
    seed: int,
) -> list[dict[str, Any]]:
    """One row per server and temperature above 0."""
    rows: list[dict[str, Any]] = []
    for temperature in temperatures:
        if temperature == 0:
            continue
        for server in servers:
            texts = set()
            for start in range(0, samples, at_once):
                many = min(at_once, samples - start)
                seeds = range(seed + start, seed + start + many)
                load = server.ask([prompt] * many, temperature=temperature, tokens=TOKENS, seeds=seeds)
                texts |= {reply.ids for reply in load.replies}
            keys = server.planned.keys()
            del keys["extra_layers"]
            rows.append({**keys, "temperature": temperature, "samples": samples, "distinct": len(texts)})
    return rows
