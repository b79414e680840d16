"""Attention of a verify, layer after layer: the project's kernel beside SGLang's, at the heads of two models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import torch

from ddtree import kernels
from ddtree.serving.attention import tree_attention
from ddtree.workbook.speed import peers
from ddtree.workbook.speed.floors import Bandwidth
from ddtree.workbook.speed.graphs import captured
from ddtree.workbook.speed.inputs import Sizes
from ddtree.workbook.speed.layers import WORDS, Layer, make_layers
from ddtree.workbook.speed.medians import columns, median, ratio
from ddtree.workbook.speed.timing import Case, clock_of, fitting, interleaved, runnable

HEADS = {"SmolLM2-135M": (9, 3, 64), "Qwen3-8B": (32, 8, 128)}  # heads, KV heads, numbers of a head
PREFIXES = (256, 2048)  # tokens before the tree
OURS, SGLANG = "ours: tree attention", "SGLang extend"


Attention = Callable[[Layer], object]


def attentions(device: torch.device) -> tuple[dict[str, Attention], list[dict[str, str]]]:
    """What can attend to a tree on `device`, ours first, and what cannot with its reason."""
    ours = (OURS, kernels.missing(device.type), _ours)
    return runnable([ours, (SGLANG, peers.extend_missing(device), peers.extend_attention)])


def _ours(layer: Layer) -> object:
    return tree_attention(
        layer.q, layer.k, layer.v, layer.pool, (layer.indptr, layer.indices), (layer.mask, layer.mask_starts),
        nodes=layer.nodes, scale=layer.scale,
    )  # fmt: skip


def measure_attention(
    batches: Sequence[int],
    budgets: Sequence[int],
    *,
    depth: int,
    topk_cap: int,
    repeats: int,
    bandwidth: Bandwidth,
    device: torch.device,
    seed: int,
    heads: Mapping[str, tuple[int, int, int]] = HEADS,
    prefixes: Sequence[int] = PREFIXES,
    say: Callable[[str], object] = print,
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """One row per kernel, model, prefix, batch and budget, microseconds of a layer; and what was skipped.

    bfloat16. On a GPU the layers are replayed in one CUDA graph, as a server runs them. The floor is to read the
    keys and values of prefixes and nodes and the queries, and to write the answers, once.
    """
    usable, skipped = attentions(device)
    rows: list[dict[str, Any]] = []
    if not usable:
        return rows, skipped
    for (model, shape), prefix, batch, budget in product(heads.items(), prefixes, batches, budgets):
        sizes = Sizes(WORDS, batch, budget, depth, topk_cap)
        layers = make_layers(sizes, shape, prefix, seed=seed, device=device)
        where = f"{model}, prefix {prefix}, batch {batch}, budget {budget}"
        cases = fitting([_case(name, run, layers, device) for name, run in usable.items()], where, skipped)
        laps = interleaved(cases, repeats=repeats, clock=clock_of(device))
        first = layers[0]
        read = 2 * first.k.numel() * (1 + prefix / first.nodes)
        moved = first.q.element_size() * (2 * first.q.numel() + read)
        for name, microseconds in laps.items():
            each = [us / len(layers) for us in microseconds]
            rows.append(
                {
                    "attention": name,
                    "model": model,
                    "prefix": prefix,
                    "batch": batch,
                    "budget": budget,
                    **columns("us", median(each, seed=seed)),
                    **columns("over_ours", ratio(microseconds, laps[cases[0].name], seed=seed)),
                    "floor_us": bandwidth.floor_us(moved),
                    "repeats": repeats,
                }
            )
        say(f"attention: {where}")
    return rows, skipped


def _case(name: str, run: Attention, layers: Sequence[Layer], device: torch.device) -> Case:
    def call(_: int) -> object:
        return [run(layer) for layer in layers]

    return captured(name, call, 1) if device.type == "cuda" else Case(name, call)
