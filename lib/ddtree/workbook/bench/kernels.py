"""Time the stages of a round, the verify pipelines and tree attention, each with its roofline bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

from ddtree import kernels
from ddtree.commit import plan_commit
from ddtree.kernels.tree_attention import tree_attention
from ddtree.retrieve import compile_retrieve, tree_attention_mask, tree_positions
from ddtree.sampling import SamplingParams
from ddtree.topk import topk_tokens
from ddtree.tree import build_tree
from ddtree.verify import backend_report, sample_tree
from ddtree.workbook.bench import baselines
from ddtree.workbook.bench.baselines import heap_tree
from ddtree.workbook.bench.inputs import WORDS, Layer, Scene, Sizes, make_layers, make_scenes, rows_walked, walked
from ddtree.workbook.bench.timing import Case, captured, clock_of, fitting, interleaved, runnable
from ddtree.workbook.stats import columns, median, ratio

COPIED_BYTES = {"cuda": 2**31, "cpu": 2**27}  # far beyond any cache
LONG = 8  # bytes of an index


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes read and written per second by a large copy."""

    bytes_per_s: float

    def floor_us(self, moved: float) -> float:
        """Microseconds that `moved` bytes take at least."""
        return 1e6 * moved / self.bytes_per_s


def measure_bandwidth(device: torch.device, *, repeats: int = 15) -> Bandwidth:
    """Copy one large buffer into another, again and again."""
    source = torch.randint(256, (COPIED_BYTES[device.type],), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    laps = interleaved([Case("copy", lambda _: target.copy_(source))], repeats=repeats, clock=clock_of(device))
    return Bandwidth(2 * source.numel() / (1e-6 * median(laps["copy"]).value))


def bytes_to_move(stage: str, scene: Scene, *, key_len: int, visited_rows: float) -> float:
    """What `stage` must read and write at least once. Raises KeyError for a stage that is not known."""
    bs, q = scene.tree.tokens.shape
    nodes = bs * q
    draft = scene.draft_logits.numel() * scene.draft_logits.element_size()
    tree = nodes * (3 * LONG + 4)
    return {
        "top-k": draft,
        "build": draft + tree,
        "compile": nodes * (LONG + 4) + 3 * nodes * LONG,
        "mask": nodes * LONG + nodes * key_len * scene.logits.element_size(),
        "sample": visited_rows * scene.logits.shape[-1] * scene.logits.element_size(),
        "plan": nodes * 4 + 3 * bs * (scene.tree.max_depth + 1) * LONG,
    }[stage]


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
        "top-k": lambda i: topk_tokens(scenes[i].draft_logits, branch, 1.0),
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


Pipeline = Callable[[Scene, SamplingParams], object]
FUSED = "ours: fused"
STOCK, DFLASH = "stock pipeline", "SGLang DFlash"


def pipelines(device: torch.device) -> tuple[dict[str, Pipeline], list[dict[str, str]]]:
    """What can verify a tree on `device`, ours first, and what cannot with its reason."""
    ours = [
        (f"ours: {status.name}", None if status.usable else status.reason, _ours(status.name))
        for status in backend_report(device)
    ]
    stock = (STOCK, baselines.stock_missing(device), baselines.stock_verify)
    return runnable([*ours, stock, (DFLASH, baselines.dflash_missing(device), baselines.dflash_verify)])


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


HEADS = {"SmolLM2-135M": (9, 3, 64), "Qwen3-8B": (32, 8, 128)}  # heads, KV heads, numbers of a head
PREFIXES = (256, 2048)  # tokens before the tree
OURS, SGLANG = "ours: tree attention", "SGLang extend"


Attention = Callable[[Layer], object]


def attentions(device: torch.device) -> tuple[dict[str, Attention], list[dict[str, str]]]:
    """What can attend to a tree on `device`, ours first, and what cannot with its reason."""
    ours = (OURS, kernels.unavailable_reason(device.type), _tree_attention)
    return runnable([ours, (SGLANG, baselines.extend_missing(device), baselines.extend_attention)])


def _tree_attention(layer: Layer) -> object:
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
        cases = fitting([_attention_case(name, run, layers, device) for name, run in usable.items()], where, skipped)
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


def _attention_case(name: str, run: Attention, layers: Sequence[Layer], device: torch.device) -> Case:
    def call(_: int) -> object:
        return [run(layer) for layer in layers]

    return captured(name, call, 1) if device.type == "cuda" else Case(name, call)
