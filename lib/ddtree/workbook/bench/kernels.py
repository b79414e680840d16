"""Time the stages of a round, the verify pipelines and tree attention, each with its roofline bound.

The bound is the time to read and write once the bytes that the work needs, at the bandwidth of a large copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import torch

from ddtree import kernels
from ddtree.backends import sgl
from ddtree.commit import plan_commit
from ddtree.kernels.tree_attention import tree_attention
from ddtree.retrieve import compile_retrieve, tree_attention_mask, tree_positions
from ddtree.sampling import SamplingParams
from ddtree.topk import topk_tokens
from ddtree.tree import build_tree
from ddtree.verify import backend_report
from ddtree.workbook.bench import baselines
from ddtree.workbook.bench.inputs import (
    ATTENTION_VOCAB,
    LayerInputs,
    RoundInputs,
    Sizes,
    make_input_sets,
    make_layers,
    mean_rows_visited,
)
from ddtree.workbook.bench.timing import Benchmark, Clock, Skipped, captured, fitting_memory, interleaved, usable
from ddtree.workbook.stats import columns, median, ratio

COPIED_BYTES = {"cuda": 2**31, "cpu": 2**27}  # far beyond any cache
INT64_BYTES = 8
MASKED_PREFIX = 512  # committed tokens that a mask covers, in addition to the tree
IN_GRAPHS = ("top-k", "build", "compile", "mask")  # also captured, where there are CUDA graphs
HEAP = "heap"
BUILDERS = {"build": "build_tree", "build, graph": "build_tree in a CUDA graph"}
FUSED = "ours: fused"
STOCK, DFLASH = "stock pipeline", "SGLang DFlash"
OURS, SGLANG = "ours: tree attention", "SGLang extend"
HEADS = {"SmolLM2-135M": (9, 3, 64), "Qwen3-8B": (32, 8, 128)}  # heads, KV heads, size of a head
PREFIXES = (256, 2048)  # tokens before the tree

Rows = list[dict[str, Any]]
Pipeline = Callable[[RoundInputs, SamplingParams], object]
Attention = Callable[[LayerInputs], object]


@dataclass(frozen=True, slots=True)
class Setup:
    """What the benchmarks of one run share: where they run, how often, and where they report."""

    device: torch.device
    dtype: torch.dtype  # of the logits
    repeats: int
    seed: int
    bytes_per_s: float  # read and written by a large copy
    skipped: Skipped = field(default_factory=list)  # added to: what could not run, and why
    say: Callable[[str], object] = print

    def time(self, benchmarks: Sequence[Benchmark], where: str) -> dict[str, list[float]]:
        """Microseconds of each benchmark that fits into memory, interleaved."""
        fitting = fitting_memory(benchmarks, where, self.skipped)
        return interleaved(fitting, repeats=self.repeats, clock=Clock(self.device))

    def bound_us(self, moved: float) -> float:
        """The least microseconds in which `moved` bytes can be read and written."""
        return 1e6 * moved / self.bytes_per_s

    def rows(self, kind: str, timings: Mapping[str, Sequence[float]], place: dict[str, Any], moved: float) -> Rows:
        """A row for each timing: its median, its ratio to the first one, and the roofline bound."""
        ours = next(iter(timings.values()), [])
        rows = []
        for name, us in timings.items():
            found = columns("us", median(us, seed=self.seed)) | columns("over_ours", ratio(us, ours, seed=self.seed))
            rows.append({kind: name, **place, **found, "floor_us": self.bound_us(moved), "repeats": self.repeats})
        return rows


def measure_bandwidth(device: torch.device, *, repeats: int = 15) -> float:
    """Bytes per second, read and written, of copying one large buffer into another."""
    source = torch.randint(256, (COPIED_BYTES[device.type],), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copy = Benchmark("copy", lambda _: target.copy_(source))
    timings = interleaved([copy], repeats=repeats, clock=Clock(device))
    return 2 * source.numel() / (1e-6 * median(timings["copy"]).value)


def bytes_to_move(stage: str, inputs: RoundInputs, *, key_len: int, visited_rows: float) -> float:
    """The bytes that `stage` must read and write at least once. Raises KeyError for an unknown stage."""
    bs, q = inputs.tree.tokens.shape
    nodes = bs * q
    draft = inputs.draft_logits.numel() * inputs.draft_logits.element_size()
    tree = nodes * (3 * INT64_BYTES + 4)
    return {
        "top-k": draft,
        "build": draft + tree,
        "compile": nodes * (INT64_BYTES + 4) + 3 * nodes * INT64_BYTES,
        "mask": nodes * INT64_BYTES + nodes * key_len * inputs.logits.element_size(),
        "sample": visited_rows * inputs.logits.shape[-1] * inputs.logits.element_size(),
        "plan": nodes * 4 + 3 * bs * (inputs.tree.max_depth + 1) * INT64_BYTES,
    }[stage]


def measure_stages(grid: Iterable[Sizes], sampling: SamplingParams, setup: Setup) -> tuple[Rows, Rows]:
    """One row per stage and size, and one row per builder and size with the heap's time over the builder's."""
    stages: Rows = []
    builders: Rows = []
    for sizes in grid:
        place = {"vocab": sizes.vocab, "batch": sizes.batch, "budget": sizes.budget}
        timings = _measure_stages_at(sizes, place, sampling, setup, stages)
        for name, builder in BUILDERS.items():
            if name in timings:
                speedup = columns("ratio", ratio(timings[HEAP], timings[name], seed=setup.seed))
                builders.append({"builder": builder, **place, **speedup, "heap_us": median(timings[HEAP]).value})
        setup.say(f"stages: {sizes}")
    return stages, builders


def _measure_stages_at(
    sizes: Sizes, place: dict[str, Any], sampling: SamplingParams, setup: Setup, rows: Rows
) -> dict[str, list[float]]:
    """Add the rows of one size and return its timings; the inputs are freed before the next size's are made."""
    sets = make_input_sets(sizes, seed=setup.seed, device=setup.device, dtype=setup.dtype)
    key_len = MASKED_PREFIX + sizes.budget + 1
    timings = setup.time(_stage_benchmarks(sets, sizes, key_len, sampling, setup.device), str(sizes))
    visited = mean_rows_visited(sets, sampling)
    for name, microseconds in timings.items():
        stage, _, how = name.partition(", ")
        moved = bytes_to_move("build" if stage == HEAP else stage, sets[0], key_len=key_len, visited_rows=visited)
        found = columns("us", median(microseconds, seed=setup.seed))
        row = {"stage": stage, "how": how or "launches", **place, **found, "floor_us": setup.bound_us(moved)}
        rows.append({**row, "repeats": setup.repeats})
    return timings


def _stage_benchmarks(
    sets: list[RoundInputs], sizes: Sizes, key_len: int, sampling: SamplingParams, device: torch.device
) -> list[Benchmark]:
    cap, budget = sizes.topk_cap, sizes.budget
    branch = min(cap, budget, sizes.vocab)
    results = [inputs.sample(sampling, backend="reference") for inputs in sets]

    def mask(inputs: RoundInputs) -> object:
        tree_positions(inputs.tree, inputs.prefix_len)
        return tree_attention_mask(inputs.tree, inputs.prefix_len, key_len=key_len, dtype=inputs.logits.dtype)

    calls: dict[str, Callable[[int], object]] = {
        "top-k": lambda i: topk_tokens(sets[i].draft_logits, branch, 1.0),
        "build": lambda i: build_tree(sets[i].draft_logits, sets[i].roots, budget=budget, topk_cap=cap),
        "compile": lambda i: compile_retrieve(sets[i].tree),
        "mask": lambda i: mask(sets[i]),
        "sample": lambda i: sets[i].sample(sampling),
        "plan": lambda i: plan_commit(sets[i].tree, results[i], sets[i].prefix_len),
        HEAP: lambda i: baselines.heap_tree(sets[i].draft_logits, sets[i].roots, budget=budget, topk_cap=cap),
    }
    benchmarks = [_on_sets(name, call, len(sets)) for name, call in calls.items()]
    if device.type == "cuda":
        benchmarks += [captured(f"{name}, graph", calls[name], len(sets)) for name in IN_GRAPHS]
    return benchmarks


def _on_sets(name: str, call: Callable[[int], object], sets: int) -> Benchmark:
    """`call` on one input set after the other."""
    return Benchmark(name, lambda turn: call(turn % sets))


def verify_pipelines(device: torch.device, skipped: Skipped) -> dict[str, Pipeline]:
    """What can verify a tree on `device` by name, ours first; what cannot is added to `skipped`."""

    def ours(backend: str) -> Pipeline:
        return lambda inputs, sampling: inputs.sample(sampling, backend=backend)

    backends = [
        (f"ours: {status.name}", None if status.usable else status.reason, ours(status.name))
        for status in backend_report(device)
    ]
    stock = (STOCK, sgl.missing(device.type), baselines.stock_verify)
    return usable([*backends, stock, (DFLASH, baselines.dflash_missing(device), baselines.dflash_verify)], skipped)


def measure_verify(grid: Iterable[Sizes], filters: Mapping[str, SamplingParams], setup: Setup) -> Rows:
    """One row per pipeline, filters and size.

    `over_ours` of a row is its time over that of our first backend, which "auto" takes.
    """
    pipelines = verify_pipelines(setup.device, setup.skipped)
    rows: Rows = []
    for sizes in grid:
        rows += _measure_verify_at(sizes, pipelines, filters, setup)
        setup.say(f"verify: {sizes}")
    return rows


def _measure_verify_at(
    sizes: Sizes, pipelines: Mapping[str, Pipeline], filters: Mapping[str, SamplingParams], setup: Setup
) -> Rows:
    sets = make_input_sets(sizes, seed=setup.seed, device=setup.device, dtype=setup.dtype)
    rows: Rows = []
    for label, sampling in filters.items():
        benchmarks = [
            Benchmark(name, lambda turn, run=run, sampling=sampling: run(sets[turn % len(sets)], sampling))  # type: ignore[misc]
            for name, run in pipelines.items()
        ]
        if FUSED in pipelines and setup.device.type == "cuda":
            call = _fused_call(sets, sampling)
            benchmarks += [_on_sets(f"{FUSED}, no wait", call, len(sets)), captured(f"{FUSED}, graph", call, len(sets))]
        timings = setup.time(benchmarks, f"{sizes}, {label}")
        visited = mean_rows_visited(sets, sampling)
        place = {"filters": label, "vocab": sizes.vocab, "batch": sizes.batch, "budget": sizes.budget}
        moved = bytes_to_move("sample", sets[0], key_len=0, visited_rows=visited)
        rows += setup.rows("pipeline", timings, place | {"rows_walked": visited / sizes.batch}, moved)
    return rows


def _fused_call(sets: list[RoundInputs], sampling: SamplingParams) -> Callable[[int], object]:
    """The kernel as a server calls it: parameters already on the device, and no wait for its status."""
    from ddtree.backends import fused

    on_device = fused.SamplingTensors.from_requests([sampling] * sets[0].tree.batch_size, sets[0].logits.device)

    def call(number: int) -> object:
        s = sets[number]
        return fused.sample(s.tree, s.tables, s.logits, on_device, s.coins, s.final_coins)

    return call


def attention_kernels(device: torch.device, skipped: Skipped) -> dict[str, Attention]:
    """What can attend to a tree on `device` by name, ours first; what cannot is added to `skipped`."""
    ours = (OURS, kernels.unavailable_reason(device.type), _tree_attention)
    return usable([ours, (SGLANG, baselines.extend_missing(device), baselines.extend_attention)], skipped)


def _tree_attention(layer: LayerInputs) -> object:
    return tree_attention(
        layer.q, layer.k, layer.v, layer.pool, (layer.indptr, layer.indices), (layer.mask, layer.mask_starts),
        nodes=layer.nodes, scale=layer.scale,
    )  # fmt: skip


def measure_attention(
    batches: Sequence[int],
    budgets: Sequence[int],
    setup: Setup,
    *,
    depth: int,
    topk_cap: int,
    heads: Mapping[str, tuple[int, int, int]] = HEADS,
    prefixes: Sequence[int] = PREFIXES,
) -> Rows:
    """One row per kernel, model, prefix, batch and budget: microseconds of one layer, in bfloat16.

    On a GPU the layers are replayed in one CUDA graph, as a server runs them. The roofline bound is to read keys and
    values of prefixes and nodes and the queries, and to write the outputs, once.
    """
    found = attention_kernels(setup.device, setup.skipped)
    rows: Rows = []
    if not found:
        return rows
    for (model, shape), prefix, batch, budget in product(heads.items(), prefixes, batches, budgets):
        sizes = Sizes(ATTENTION_VOCAB, batch, budget, depth, topk_cap)
        layers = make_layers(sizes, shape, prefix, seed=setup.seed, device=setup.device)
        where = f"{model}, prefix {prefix}, batch {batch}, budget {budget}"
        timings = setup.time([_on_layers(name, run, layers, setup.device) for name, run in found.items()], where)
        each = {name: [us / len(layers) for us in microseconds] for name, microseconds in timings.items()}
        first = layers[0]
        read = 2 * first.k.numel() * (1 + prefix / first.nodes)
        moved = first.q.element_size() * (2 * first.q.numel() + read)
        place = {"model": model, "prefix": prefix, "batch": batch, "budget": budget}
        rows += setup.rows("attention", each, place, moved)
        setup.say(f"attention: {where}")
    return rows


def _on_layers(name: str, run: Attention, layers: Sequence[LayerInputs], device: torch.device) -> Benchmark:
    def call(_: int) -> object:
        return [run(layer) for layer in layers]

    return captured(name, call, 1) if device.type == "cuda" else Benchmark(name, call)
