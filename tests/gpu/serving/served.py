"""Servers that the tests of this folder share, started at the same time on one GPU, and what is asked of them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from ddtree.models.zoo import fetch, fetch_drafter
from ddtree.workbook.bench_serving.client import Client
from ddtree.workbook.bench_serving.servers import (
    SGLANG,
    Launch,
    ModelFolders,
    ServerSpec,
    free_ports,
    launch_arguments,
    launch_environment,
    model_folders,
    started,
)
from ddtree.workbook.params import ServingParams

PLUGINS = [found.name for found in importlib.metadata.entry_points(group="sglang.srt.plugins")]
NEEDS = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.skipif(importlib.util.find_spec("sglang") is None, reason="sglang is not installed"),
    pytest.mark.skipif("ddtree" not in PLUGINS, reason="no entry point ddtree in sglang.srt.plugins"),
]

BLOCK = 8  # of the drafter that ships
BATCHES = [1, 2, 8, 32, 64]  # that decode under a graph; no more requests run at once
PROMPTS = (
    "The capital of France is", "Once upon a time, in a village by the sea,", "def fibonacci(n):\n",
    "Photosynthesis is the process by which", "The three laws of thermodynamics are",
    "Dear Sir or Madam,\n\nI am writing to", "1, 2, 3, 4, 5, 6, 7, 8,", "Water boils at 100 degrees because",
)  # fmt: skip
EVERYONE = {
    "attention_backend": "triton", "sampling_backend": "pytorch", "grammar_backend": "none", "page_size": 1,
    "context_length": 2048, "disable_prefill_cuda_graph": True, "max_running_requests": max(BATCHES),
    "mem_fraction_static": 0.8, "max_total_tokens": 200_000, "sleep_on_idle": True,
}  # fmt: skip
HALF = {"dtype": "float16"}
STOCK_ATTENTION = {"DDTREE_ATTENTION": "sglang"}  # rounds as DFLASH's does, for comparison token by token
EAGER = {"disable_cuda_graph": True, "disable_overlap_schedule": True}


@dataclass(frozen=True, slots=True)
class Kind:
    """One server: its method, tree, and arguments and variables of its own."""

    spec: ServerSpec
    own: dict[str, Any]
    variables: dict[str, str] = field(default_factory=dict)


KINDS = {
    "plain": Kind(ServerSpec("plain", "plain", None, None, 0), {}),
    "dflash": Kind(ServerSpec("dflash", "dflash", None, None, 0), {}),
    "chain": Kind(ServerSpec("chain", "ddtree", BLOCK - 1, 1, 0), {}, STOCK_ATTENTION),
    "tree": Kind(ServerSpec("tree", "ddtree", 16, 4, 0), {}),
    "eager": Kind(ServerSpec("eager", "ddtree", 16, 4, 0), EAGER),
    "plain in float16": Kind(ServerSpec("plain in float16", "plain", None, None, 0), HALF),
    "tree in float16": Kind(ServerSpec("tree in float16", "ddtree", 16, 4, 0), HALF),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt and SGLang's sampling parameters."""

    prompt: str
    sampling: dict[str, Any]


@contextmanager
def serving(names: Sequence[str], logs: Path) -> Iterator[dict[str, Client]]:
    with model_folders(fetch("smollm2-135m"), fetch_drafter("smollm2-135m"), 0) as pair:
        launches = [
            launch_of(name, pair, logs, ports) for name, ports in zip(names, ports_for(len(names)), strict=True)
        ]
        with started(launches, timeout_s=300) as running:
            yield {server.name: server.client for server in running}


def ports_for(many: int) -> list[tuple[int, int]]:
    ports = free_ports(2 * many)
    return list(zip(ports[::2], ports[1::2], strict=True))


def launch_of(name: str, pair: ModelFolders, logs: Path, ports: tuple[int, int]) -> Launch:
    kind = KINDS[name]
    params = ServingParams(batches=BATCHES, server_arguments=EVERYONE | kind.own)
    words = launch_arguments(kind.spec, params, pair, port=ports[0], nccl_port=ports[1])
    told = launch_environment(kind.spec, params) | kind.variables
    return Launch(kind.spec, (*SGLANG, *words), told, ports[0], logs / f"{name}.log")


def alone(server: Client, asked: Sequence[Asked]) -> list[list[int]]:
    """One after another, from a cache that holds nothing of earlier tests."""
    forget(server)
    return [server.generate([each.prompt], [each.sampling])[0]["output_ids"] for each in asked]


def together(server: Client, asked: Sequence[Asked]) -> list[list[int]]:
    answers = server.generate([each.prompt for each in asked], [each.sampling for each in asked])
    return [answer["output_ids"] for answer in answers]


def arriving(server: Client, asked: Sequence[Asked], spread_s: float) -> list[list[int]]:
    """Each at its own time within `spread_s`, in another order than asked, so that requests join and leave a batch."""

    def ask(place: int) -> list[int]:
        time.sleep(spread_s * ((7 * place) % len(asked)) / len(asked))
        return together(server, [asked[place]])[0]

    with ThreadPoolExecutor(len(asked)) as threads:
        return list(threads.map(ask, range(len(asked))))


def forget(server: Client) -> None:
    """Empty the radix cache; the server does so when it is idle."""
    answer = server.http.post("/flush_cache", params={"timeout": 30.0})
    assert answer.status_code == 200, answer.text
