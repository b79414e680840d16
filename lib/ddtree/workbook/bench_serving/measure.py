"""Measure SGLang servers on the same requests: alone, in batches, greedy text and diversity, as plain rows.

A group is one target, with or without identity layers, and its servers: started together, then asked in turn. Every
server has cached the prompts before anything is timed. All servers of a group are stopped at its end."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddtree.workbook.bench_serving.client import Choice
from ddtree.workbook.bench_serving.requests import encoded
from ddtree.workbook.bench_serving.servers import SGLANG, Server, filled, group, in_turn, source_folders
from ddtree.workbook.interrupts import stoppable
from ddtree.workbook.params import ServingParams
from ddtree.workbook.paths import resolve

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


PARTS = (
    "servers",
    "alone",
    "together",
    "histograms",
    "greedy",
    "plain_greedy",
    "depth_is_free",
    "diversity",
    "skipped",
)
WARM_UP_TOKENS = 8
WARM_UP_SIZES = 16  # batches up to this are of every smaller size as well, while their replies end
Metrics = dict[str, list[dict[str, Any]]]
Say = Callable[[str], object]


def measure_serving(
    params: ServingParams,
    *,
    say: Say = print,
    keep: Callable[[Metrics], object] = lambda _: None,
    before: Mapping[str, Any] | None = None,
    logs: Path | None = None,
    program: Sequence[str] = SGLANG,
) -> Metrics:
    """Lists of rows by part, in seconds and tokens.

    Args:
        keep: called with everything measured so far after each part of a group, so that a later failure costs a part.
        before: such rows of earlier groups, which these are added to.
        logs: folder of the servers' logs; OUT_DIR/logs without it.
        program: what is started with a server's arguments.

    Raises ValueError for parameters that do not go together, RuntimeError for a missing GPU, ServerDiedError with the
    end of a log, RefusedError for a request that a server does not take. All servers started are stopped before.
    """
    if params.urls and len(params.extra_layers) != 1:
        raise ValueError(
            f"extra_layers is {params.extra_layers} with `urls`: servers that run already have one target; give the "
            "number of its identity layers alone."
        )
    if not params.urls and tuple(program) == SGLANG:
        _require_gpus(params.tp)
    target, drafter = source_folders(params)
    prompts = encoded(params.prompts, target)
    metrics: Metrics = {part: list((before or {}).get(part, [])) for part in PARTS}
    logs = logs or resolve(params.out_dir) / "logs"
    with stoppable():
        for extra_layers in params.extra_layers:
            label = f"{extra_layers} identity layers" if extra_layers else "the target as it is"
            say(label)
            with group(params, extra_layers, (target, drafter), logs, program, say) as (servers, rows):
                metrics["servers"] += rows
                say("all servers are ready")

                def done(what: str) -> None:
                    say(what)
                    metrics["depth_is_free"] = depth_rows(metrics["plain_greedy"])
                    keep(metrics)

                _measure_group(params, servers, prompts, metrics, done)
    return metrics


def _measure_group(
    params: ServingParams, servers: Sequence[Server], prompts: Sequence[Sequence[int]], metrics: Metrics, done: Say
) -> None:
    """`done` is told of each part once its rows are there."""
    common: dict[str, Any] = {"temperatures": params.temperatures, "seed": params.seed}
    largest = max(params.batches)
    _warm_up(params, servers, prompts)
    if 1 in params.batches:
        alone = measure_alone(servers, prompts, tokens=params.max_new_tokens, **common)
        metrics["alone"] += alone.rows
        metrics["histograms"] += alone.histograms
        done("one request at a time")
        done(_greedy(servers, prompts, alone.greedy, metrics))
    else:
        _skip(metrics, "batch 1, histograms and the greedy regression", "1 is not among `batches`")
    if several := [batch for batch in params.batches if batch > 1]:
        metrics["together"] += measure_together(
            servers, prompts, batches=several, repeats=params.repeats, tokens=params.max_new_tokens, **common
        )
        done(f"{', '.join(map(str, several))} requests at once")
    if params.samples and not metrics["diversity"]:
        metrics["diversity"] += measure_diversity(
            servers, prompts[0], samples=params.samples, at_once=largest, **common
        )
        done(f"{params.samples} answers to one prompt")


def _greedy(
    servers: Sequence[Server],
    prompts: Sequence[Sequence[int]],
    ids: Mapping[tuple[str, int], tuple[int, ...]],
    metrics: Metrics,
) -> str:
    """What was done."""
    plain = next((server for server in servers if server.planned.method == "plain"), None)
    if plain is None or not ids:
        why = "no plain server is among `urls`" if plain is None else "0 is not among `temperatures`"
        _skip(metrics, "the greedy regression", why)
        return f"greedy texts are not compared: {why}"
    metrics["plain_greedy"] += [
        {"extra_layers": plain.planned.extra_layers, "prompt": number, "ids": list(ids[plain.name, number])}
        for number in range(len(prompts))
    ]
    others = [server for server in servers if server is not plain]
    metrics["greedy"] += measure_greedy(plain, others, prompts, ids)
    return "greedy texts compared"


def _warm_up(params: ServingParams, servers: Sequence[Server], prompts: Sequence[Sequence[int]]) -> None:
    """Every prompt once, and every batch at every temperature: what is made at first use is there then.

    Replies of a batch end one after another, so that it shrinks as a measured one does.
    """
    for server in servers:
        for prompt in prompts:
            server.ask([prompt], temperature=0.0, tokens=1, seeds=[0])
        for temperature in params.temperatures:
            for batch in params.batches:
                each = [{"max_new_tokens": WARM_UP_TOKENS * (1 + place % WARM_UP_SIZES)} for place in range(batch)]
                server.running.client.together(
                    filled(prompts, batch, 0), each=each, temperature=temperature, ignore_eos=True
                )


def _skip(metrics: Metrics, what: str, why: str) -> None:
    entry = {"what": what, "why": why}
    if entry not in metrics["skipped"]:
        metrics["skipped"].append(entry)


def _require_gpus(needed: int) -> None:
    import torch

    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if found < needed:
        raise RuntimeError(
            f"SGLang's servers need {needed} CUDA device(s), and torch finds {found} here; give `urls` of servers that "
            "run elsewhere, or `recorded`, an earlier result."
        )
