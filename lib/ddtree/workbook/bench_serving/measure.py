"""Measure SGLang servers on the same requests: single and batched, greedy texts and diversity, as plain rows.

The servers of a group are started together and asked interleaved. Every server has cached the prompts before anything
is timed. All servers of a group are stopped before the next is started.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

from ddtree.workbook.bench.timing import rotated
from ddtree.workbook.bench_serving.client import Choice
from ddtree.workbook.bench_serving.servers import SGLANG, Rows, Say, Server, server_group, source_folders
from ddtree.workbook.interrupts import stoppable
from ddtree.workbook.params import ServingParams
from ddtree.workbook.paths import resolve

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
WARM_UP_SIZES = 16  # as their replies end, batches up to this pass through every smaller size
DIVERSITY_TOKENS = 32

Ids = Sequence[int]
GreedyTexts = dict[tuple[str, int], tuple[int, ...]]  # (server, prompt) to token ids at T = 0
Metrics = dict[str, Rows]


@dataclass(slots=True)
class Recorder:
    """Collects the rows of each part, and passes all of them to `keep` after each step."""

    metrics: Metrics
    say: Say
    keep: Callable[[Metrics], object]

    def add(self, done: str, **rows: Rows) -> None:
        for part, found in rows.items():
            self.metrics[part] += found
        self.say(done)
        self.metrics["depth_is_free"] = compare_depths(self.metrics["plain_greedy"])
        self.keep(self.metrics)

    def skip(self, what: str, why: str) -> None:
        if (entry := {"what": what, "why": why}) not in self.metrics["skipped"]:
            self.metrics["skipped"].append(entry)


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
        keep: called with everything measured so far after each part of a group, so that a later failure costs one part.
        before: rows of earlier groups, to which these are added.
        logs: folder of the servers' logs; OUT_DIR/logs by default.
        program: what is started with a server's arguments.

    Raises ValueError for parameters that do not go together, RuntimeError for a missing GPU, ServerDiedError with the
    end of a log, RefusedError for a request that a server refuses. All servers started are stopped before.
    """
    if params.urls and len(params.extra_layers) != 1:
        raise ValueError(
            f"extra_layers is {params.extra_layers} with `urls`: servers that are running already have one target; "
            "give only the number of its identity layers."
        )
    if not params.urls and tuple(program) == SGLANG:
        _require_gpus(params.tp)
    sources = source_folders(params)
    prompts = encode_prompts(params.prompts, sources[0])
    recorder = Recorder({part: list((before or {}).get(part, [])) for part in PARTS}, say, keep)
    logs = logs or resolve(params.out_dir) / "logs"
    with stoppable():
        for extra_layers in params.extra_layers:
            say(f"{extra_layers} identity layers" if extra_layers else "the target as it is")
            with server_group(params, extra_layers, sources, logs, program, say) as (servers, rows):
                recorder.metrics["servers"] += rows
                say("all servers are ready")
                _measure_group(params, servers, prompts, recorder)
    return recorder.metrics


def _require_gpus(needed: int) -> None:
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if found < needed:
        raise RuntimeError(
            f"SGLang's servers need {needed} CUDA device(s), and torch finds {found} here; give `urls` of servers that "
            "run elsewhere, or `recorded`, an earlier result."
        )


def encode_prompts(messages: Sequence[str], target: Path) -> list[list[int]]:
    """Token ids of one user message each, through the chat template of the tokenizer in `target` if it has one."""
    from transformers import AutoTokenizer

    from ddtree.models.target import encode_chat  # imports transformers

    tokenizer: Any = AutoTokenizer.from_pretrained(target, local_files_only=True, trust_remote_code=False)
    return [encode_chat(tokenizer, message) for message in messages]


def _measure_group(
    params: ServingParams, servers: Sequence[Server], prompts: Sequence[Ids], recorder: Recorder
) -> None:
    _warm_up(params, servers, prompts)
    if 1 in params.batches:
        single, histograms, texts = measure_single(params, servers, prompts)
        recorder.add("one request at a time", alone=single, histograms=histograms)
        _compare_greedy(servers, prompts, texts, recorder)
    else:
        recorder.skip("batch 1, histograms and the greedy regression", "1 is not among `batches`")
    if batches := [batch for batch in params.batches if batch > 1]:
        batched = measure_batched(params, servers, prompts, batches)
        recorder.add(f"{', '.join(map(str, batches))} requests at once", together=batched)
    if params.samples and not recorder.metrics["diversity"]:
        recorder.add(
            f"{params.samples} answers to one prompt", diversity=measure_diversity(params, servers, prompts[0])
        )


def _warm_up(params: ServingParams, servers: Sequence[Server], prompts: Sequence[Ids]) -> None:
    """Every prompt once, and every batch at every temperature, so that what is made at first use is there.

    The replies of a batch end one after another, so that it shrinks as a measured one does.
    """
    for server in servers:
        for prompt in prompts:
            server.request([prompt], temperature=0.0, tokens=1, seeds=[0])
        for temperature, batch in product(params.temperatures, params.batches):
            each = [{"max_new_tokens": WARM_UP_TOKENS * (1 + place % WARM_UP_SIZES)} for place in range(batch)]
            batched = cycled(prompts, batch, 0)
            server.client.request_batch(batched, each=each, temperature=temperature, ignore_eos=True)


def cycled(prompts: Sequence[Ids], batch: int, turn: int) -> list[Ids]:
    """`batch` of the prompts, over and over; the next turn continues where this one ends."""
    return [prompts[(turn * batch + place) % len(prompts)] for place in range(batch)]


def measure_single(
    params: ServingParams, servers: Sequence[Server], prompts: Sequence[Ids]
) -> tuple[Rows, Rows, GreedyTexts]:
    """One request at a time: a row per server, temperature and prompt; rows of histograms; the greedy texts.

    `first_token_s` is the time of a one-token reply requested just before, since replies come whole. Histograms count
    the verify passes that gave 1, 2, ... tokens, by the server's own count; a server that counts none has no row.
    """
    rows: Rows = []
    histograms: Rows = []
    texts: GreedyTexts = {}
    for place, temperature in enumerate(params.temperatures):
        passes: dict[str, Counter[int]] = {server.name: Counter() for server in servers}
        for number, prompt in enumerate(prompts):
            seeds = [params.seed + place * len(prompts) + number]
            for server in rotated(servers, place + number):
                first = server.request([prompt], temperature=temperature, tokens=1, seeds=seeds)
                whole = server.request([prompt], temperature=temperature, tokens=params.max_new_tokens, seeds=seeds)
                (reply,) = whole.replies
                row = server.spec.keys() | {"temperature": temperature, "prompt": number, "tokens": reply.tokens}
                row |= {"total_s": whole.wall_s, "first_token_s": first.wall_s}
                rows.append(row | {"rounds": reply.rounds, "acceptance": reply.acceptance})
                for accepted, times in enumerate(reply.passes or ()):
                    passes[server.name][accepted + 1] += times
                if temperature == 0:
                    texts[server.name, number] = reply.ids
        for server in servers:
            counts = {str(made): times for made, times in sorted(passes[server.name].items()) if times}
            if counts:
                histograms.append(server.spec.keys() | {"temperature": temperature, "counts": counts})
    return rows, histograms, texts


def measure_batched(
    params: ServingParams, servers: Sequence[Server], prompts: Sequence[Ids], batches: Sequence[int]
) -> Rows:
    """One row per server, temperature, batch and repeat: `tokens` and `rounds` are sums over the batch.

    `first_token_s` is the median over a batch of one-token replies requested just before, by the server's own clock.
    """
    rows: Rows = []
    turns = product(params.temperatures, batches, range(params.repeats))
    for turn, (temperature, batch, repeat) in enumerate(turns):
        batched = cycled(prompts, batch, repeat)
        first_seed = params.seed + turn * max(batches)
        seeds = range(first_seed, first_seed + batch)
        for server in rotated(servers, turn):
            first = server.request(batched, temperature=temperature, tokens=1, seeds=seeds)
            whole = server.request(batched, temperature=temperature, tokens=params.max_new_tokens, seeds=seeds)
            rounds = [reply.rounds for reply in whole.replies if reply.rounds is not None]
            seconds = [first.wall_s if reply.server_s is None else reply.server_s for reply in first.replies]
            row = server.spec.keys() | {"temperature": temperature, "batch": batch, "repeat": repeat}
            row |= {"tokens": sum(reply.tokens for reply in whole.replies), "wall_s": whole.wall_s}
            row |= {"first_token_s": statistics.median(seconds), "rounds": sum(rounds) if rounds else None}
            rows.append(row | {"requests": batch})
    return rows


def _compare_greedy(servers: Sequence[Server], prompts: Sequence[Ids], texts: GreedyTexts, recorder: Recorder) -> None:
    plain = next((server for server in servers if server.spec.method == "plain"), None)
    if plain is None or not texts:
        why = "no plain server is among `urls`" if plain is None else "0 is not among `temperatures`"
        recorder.skip("the greedy regression", why)
        recorder.add(f"greedy texts are not compared: {why}")
        return
    of_plain = [
        {"extra_layers": plain.spec.extra_layers, "prompt": number, "ids": list(texts[plain.name, number])}
        for number in range(len(prompts))
    ]
    others = [server for server in servers if server is not plain]
    rows = compare_greedy(plain, others, prompts, texts)
    recorder.add("greedy texts compared", plain_greedy=of_plain, greedy=rows)


def compare_greedy(plain: Server, others: Sequence[Server], prompts: Sequence[Ids], texts: GreedyTexts) -> Rows:
    """One row per server and prompt: where its greedy text first differs from plain's.

    Where texts diverge, the plain engine is asked once more, for its top two tokens at each place. If that reply
    differs from its first one before the place, gap and choice stay None.
    """
    rows: Rows = []
    for number, prompt in enumerate(prompts):
        right = texts[plain.name, number]
        differences = {server.name: first_difference(right, texts[server.name, number]) for server in others}
        places = [place for place in differences.values() if place is not None]
        again: Ids = ()
        top_two: list[list[Choice]] = []
        if places:
            sampling = {"temperature": 0.0, "max_new_tokens": max(places) + 1, "ignore_eos": True}
            again, top_two = plain.client.top_logprobs(prompt, 2, **sampling)
        for server in others:
            text, place = texts[server.name, number], differences[server.name]
            gap, second = None, None
            if place is not None and again[:place] == right[:place]:
                (first_logprob, one), (second_logprob, other) = top_two[place]
                gap, second = first_logprob - second_logprob, text[place] in (one, other)
            row = server.spec.keys() | {"prompt": number, "tokens": len(text), "first_difference": place}
            rows.append(row | {"gap_nats": gap, "second_choice": second})
    return rows


def first_difference(one: Ids, other: Ids) -> int | None:
    """The first place at which two texts of one length differ; None if they are equal."""
    return next((place for place, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), None)


def compare_depths(plain: Sequence[Mapping[str, Any]]) -> Rows:
    """Whether identity layers leave plain's greedy text as it is, from rows {extra_layers, prompt, ids}."""
    shallow = {row["prompt"]: row["ids"] for row in plain if row["extra_layers"] == 0}
    return [
        {"extra_layers": row["extra_layers"], "prompt": row["prompt"], "same": row["ids"] == shallow[row["prompt"]]}
        for row in plain
        if row["extra_layers"] > 0 and row["prompt"] in shallow
    ]


def measure_diversity(params: ServingParams, servers: Sequence[Server], prompt: Ids) -> Rows:
    """How many different answers each server gives to one prompt: a row per server and temperature above 0."""
    rows: Rows = []
    at_once = max(params.batches)
    for temperature, server in product([t for t in params.temperatures if t > 0], servers):
        texts = set()
        for start in range(0, params.samples, at_once):
            seeds = range(params.seed + start, params.seed + min(start + at_once, params.samples))
            batch = server.request([prompt] * len(seeds), temperature=temperature, tokens=DIVERSITY_TOKENS, seeds=seeds)
            texts |= {reply.ids for reply in batch.replies}
        row = server.spec.keys() | {"temperature": temperature, "samples": params.samples, "distinct": len(texts)}
        del row["extra_layers"]  # measured only once
        rows.append(row)
    return rows
