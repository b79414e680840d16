"""Greedy text against the plain engine's: where they part, and how near the plain engine's two likeliest were there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddtree.serving.client import Choice
from ddtree.workbook.serving.ask import Server

Ids = tuple[int, ...]


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The first place at which two texts differ; None if they are equal as far as the shorter goes."""
    return next((place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)


def measure_greedy(
    plain: Server,
    others: Sequence[Server],
    prompts: Sequence[Sequence[int]],
    ids: Mapping[tuple[str, int], Ids],
) -> list[dict[str, Any]]:
    """One row per server and prompt. `ids` are the texts of (server, prompt) at T = 0.

    Where texts part, the plain engine is asked once more, for its two likeliest tokens at each place. Should that reply
    have parted from its first one before, gap and choice stay None.
    """
    rows: list[dict[str, Any]] = []
    for number, prompt in enumerate(prompts):
        right = ids[plain.name, number]
        parted = {server.name: first_difference(right, ids[server.name, number]) for server in others}
        places = [place for place in parted.values() if place is not None]
        again: Ids = ()
        choices: list[list[Choice]] = []
        if places:
            sampling = {"temperature": 0.0, "max_new_tokens": max(places) + 1, "ignore_eos": True}
            again, choices = plain.running.client.choices(prompt, 2, **sampling)
        for server in others:
            place = parted[server.name]
            gap, second = None, None
            if place is not None and again[:place] == right[:place]:
                gap, second = _judged(choices[place], ids[server.name, number][place])
            rows.append(
                {
                    **server.planned.keys(),
                    "prompt": number,
                    "tokens": len(ids[server.name, number]),
                    "first_difference": place,
                    "gap_nats": gap,
                    "second_choice": second,
                }
            )
    return rows


def _judged(likeliest: Sequence[Choice], found: int) -> tuple[float, bool]:
    """The gap between the two likeliest tokens of a place, and whether `found` is one of them."""
    (first, one), (second, other) = likeliest
    return first - second, found in (one, other)


def depth_rows(plain: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Whether plain's greedy text with identity layers is the one without, from rows {extra_layers, prompt, ids}."""
    shallow = {row["prompt"]: row["ids"] for row in plain if row["extra_layers"] == 0}
    return [
        {"extra_layers": row["extra_layers"], "prompt": row["prompt"], "same": row["ids"] == shallow[row["prompt"]]}
        for row in plain
        if row["extra_layers"] > 0 and row["prompt"] in shallow
    ]
