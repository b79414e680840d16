"""The verify, from logits to accepted paths, by every backend that runs here and by every peer that is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from ddtree.sampling import SamplingParams
from ddtree.verify import backend_report, sample_tree
from ddtree.workbook.speed import peers
from ddtree.workbook.speed.floors import Bandwidth, bytes_to_move
from ddtree.workbook.speed.graphs import captured
from ddtree.workbook.speed.inputs import Scene, Sizes, make_scenes, rows_walked
from ddtree.workbook.speed.medians import columns, median, ratio
from ddtree.workbook.speed.timing import Case, clock_of, fitting, interleaved, runnable

Pipeline = Callable[[Scene, SamplingParams], object]
FUSED = "ours: fused"
STOCK, DFLASH = "stock pipeline", "SGLang DFlash"


def pipelines(device: torch.device) -> tuple[dict[str, Pipeline], list[dict[str, str]]]:
    """What can verify a tree on `device`, ours first, and what cannot with its reason."""
    ours = [
        (f"ours: {status.name}", None if status.usable else status.reason, _ours(status.name))
        for status in backend_report(device)
    ]
    stock = (STOCK, peers.stock_missing(device), peers.stock_verify)
    return runnable([*ours, stock, (DFLASH, peers.dflash_missing(device), peers.dflash_verify)])


def _ours(backend: str) -> Pipeline:
    def run(scene: Scene, sampling: SamplingParams) -> object:
        return sample_tree(
            scene.tree, scene.tables, scene.logits, sampling, scene.coins, scene.final_coins, backend=backend
        )

    return run


def _fused_call(scenes: list[Scene], sampling: SamplingParams) -> Callable[[int], object]:
    """The kernel with the parameters already on the device and no look at the status, as a server calls it."""
    from ddtree.backends import fused

    on_device = fused.SamplingTensors.from_requests([sampling] * scenes[0].tree.batch_size, scenes[0].logits.device)

    def call(number: int) -> object:
        s = scenes[number]
        return fused.sample(s.tree, s.tables, s.logits, on_device, s.coins, s.final_coins)

    return call


def measure_verify(
    grid: Iterable[Sizes],
    filters: Mapping[str, SamplingParams],
    *,
    repeats: int,
    bandwidth: Bandwidth,
    device: torch.device,
    dtype: torch.dtype,
    seed: int,
    say: Callable[[str], object] = print,
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """One row per pipeline, filters and size, and what was skipped.

    `over_ours` of a row is its time over that of our first backend, the one that "auto" takes.
    """
    usable, skipped = pipelines(device)
    rows: list[dict[str, Any]] = []
    for sizes in grid:
        scenes = make_scenes(sizes, seed=seed, device=device, dtype=dtype)
        for label, sampling in filters.items():
            cases = [_case(name, run, scenes, sampling) for name, run in usable.items()]
            if FUSED in usable and device.type == "cuda":
                call = _fused_call(scenes, sampling)
                cases.append(_rotated(f"{FUSED}, no wait", call, len(scenes)))
                cases.append(captured(f"{FUSED}, graph", call, len(scenes)))
            cases = fitting(cases, f"{sizes}, {label}", skipped)
            laps = interleaved(cases, repeats=repeats, clock=clock_of(device))
            visited = rows_walked(scenes, sampling)
            moved = bytes_to_move("sample", scenes[0], key_len=0, visited_rows=visited)
            for name, microseconds in laps.items():
                rows.append(
                    {
                        "pipeline": name,
                        "filters": label,
                        "vocab": sizes.vocab,
                        "batch": sizes.batch,
                        "budget": sizes.budget,
                        **columns("us", median(microseconds, seed=seed)),
                        **columns("over_ours", ratio(microseconds, laps[cases[0].name], seed=seed)),
                        "floor_us": bandwidth.floor_us(moved),
                        "rows_walked": visited / sizes.batch,
                        "repeats": repeats,
                    }
                )
        say(f"verify: {sizes}")
        del scenes
    return rows, skipped


def _case(name: str, run: Pipeline, scenes: list[Scene], sampling: SamplingParams) -> Case:
    return Case(name, lambda turn: run(scenes[turn % len(scenes)], sampling))


def _rotated(name: str, call: Callable[[int], object], sets: int) -> Case:
    return Case(name, lambda turn: call(turn % sets))
