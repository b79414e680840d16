"""The whole measurement as plain rows that a result.json can hold: group by group, and none of its servers stays.

A group is one target, deepened or not, and its servers: started together, then asked in turn, one at a time. Prompts
are cached by every server before anything is timed, so a first token is that of a cached prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ddtree.workbook.interrupts import stoppable
from ddtree.workbook.params import ServingParams
from ddtree.workbook.paths import resolve
from ddtree.workbook.serving.alone import measure_alone
from ddtree.workbook.serving.ask import Server, filled
from ddtree.workbook.serving.diversity import measure_diversity
from ddtree.workbook.serving.folders import source_folders
from ddtree.workbook.serving.greedy import depth_rows, measure_greedy
from ddtree.workbook.serving.group import group
from ddtree.workbook.serving.launch import SGLANG
from ddtree.workbook.serving.prompts import encoded
from ddtree.workbook.serving.together import measure_together

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
