"""The stage table: what build, compile, mask, sampling and commit cost, and what a heap on the host costs instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from ddtree.commit import plan_commit
from ddtree.likeliest import likeliest_tokens
from ddtree.retrieve import compile_retrieve, tree_attention_mask, tree_positions
from ddtree.sampling import SamplingParams
from ddtree.tree import build_tree
from ddtree.verify import sample_tree
from ddtree.workbook.speed.floors import Bandwidth, bytes_to_move
from ddtree.workbook.speed.graphs import captured
from ddtree.workbook.speed.heap import heap_tree
from ddtree.workbook.speed.inputs import Scene, Sizes, make_scenes, rows_walked, walked
from ddtree.workbook.speed.medians import columns, median, ratio
from ddtree.workbook.speed.timing import Case, clock_of, fitting, interleaved

KEYS = 512  # committed tokens that a mask covers, beside the tree
IN_GRAPHS = ("top-k", "build", "compile", "mask")  # captured too, where there are CUDA graphs
HEAP = "heap"
BUILDERS = {"build": "build_tree", "build, graph": "build_tree in a CUDA graph"}


def measure_stages(
    grid: Iterable[Sizes],
    *,
    sampling: SamplingParams,
    repeats: int,
    bandwidth: Bandwidth,
    device: torch.device,
    dtype: torch.dtype,
    seed: int,
    skipped: list[dict[str, str]],
    say: Callable[[str], object] = print,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """One row per stage and size, and one row per builder and size with the heap's time over the builder's.

    A stage that does not fit into the device's memory at a size is added to `skipped`.
    """
    stages: list[dict[str, Any]] = []
    builders: list[dict[str, Any]] = []
    for sizes in grid:
        scenes = make_scenes(sizes, seed=seed, device=device, dtype=dtype)
        cases = fitting(_cases(scenes, sizes, sampling, device), str(sizes), skipped)
        laps = interleaved(cases, repeats=repeats, clock=clock_of(device))
        place = {"vocab": sizes.vocab, "batch": sizes.batch, "budget": sizes.budget}
        visited = rows_walked(scenes, sampling)
        for name, microseconds in laps.items():
            stage, _, how = name.partition(", ")
            floor = "build" if stage == HEAP else stage
            moved = bytes_to_move(floor, scenes[0], key_len=KEYS + sizes.budget + 1, visited_rows=visited)
            found = columns("us", median(microseconds, seed=seed))
            row = {"stage": stage, "how": how or "launches", **place, **found, "floor_us": bandwidth.floor_us(moved)}
            stages.append({**row, "repeats": repeats})
        for name, builder in BUILDERS.items():
            if name in laps:
                speedup = columns("ratio", ratio(laps[HEAP], laps[name], seed=seed))
                builders.append({"builder": builder, **place, **speedup, "heap_us": median(laps[HEAP]).value})
        say(f"stages: {sizes}")
        del scenes
    return stages, builders


def _cases(scenes: list[Scene], sizes: Sizes, sampling: SamplingParams, device: torch.device) -> list[Case]:
    sets = len(scenes)
    cap, budget = sizes.topk_cap, sizes.budget
    branch = min(cap, budget, sizes.vocab)
    key_len = KEYS + budget + 1
    results = [walked(scene, sampling) for scene in scenes]

    def mask(scene: Scene) -> object:
        tree_positions(scene.tree, scene.prefix_len)
        return tree_attention_mask(scene.tree, scene.prefix_len, key_len=key_len, dtype=scene.logits.dtype)

    def sample(scene: Scene) -> object:
        return sample_tree(scene.tree, scene.tables, scene.logits, sampling, scene.coins, scene.final_coins)

    calls: dict[str, Callable[[int], object]] = {
        "top-k": lambda i: likeliest_tokens(scenes[i].draft_logits, branch, 1.0),
        "build": lambda i: build_tree(scenes[i].draft_logits, scenes[i].roots, budget=budget, topk_cap=cap),
        "compile": lambda i: compile_retrieve(scenes[i].tree),
        "mask": lambda i: mask(scenes[i]),
        "sample": lambda i: sample(scenes[i]),
        "plan": lambda i: plan_commit(scenes[i].tree, results[i], scenes[i].prefix_len),
        HEAP: lambda i: heap_tree(scenes[i].draft_logits, scenes[i].roots, budget=budget, topk_cap=cap),
    }
    cases = [Case(name, lambda turn, call=call: call(turn % sets)) for name, call in calls.items()]  # type: ignore[misc]
    if device.type == "cuda":
        cases += [captured(f"{name}, graph", calls[name], sets) for name in IN_GRAPHS]
    return cases
