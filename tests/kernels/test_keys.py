"""A key parts all calls that Triton would compile apart: its own specialisation says which, on tensors of a CPU.

Every door to a kernel is called with one input changed at a time: types, sizes about the values that Triton looks at
(1, multiples of 16, beyond 31 bits), strides, where memory starts, constants. Nothing is compiled or launched.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from ddtree import kernels
from ddtree.backends import fused
from ddtree.backends.fused import launch as fused_launch
from ddtree.kernels import ops
from ddtree.retrieve import RetrieveTables
from ddtree.tree import DraftTree, candidate_pairs
from torch import Tensor

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")

Launch = tuple[Any, tuple[Any, ...], tuple[Any, ...], int]  # kernel, arguments, key, warps
Launches = dict[str, list[Launch]]


def wanted(kernel: Any, arguments: tuple[Any, ...], warps: int) -> object:
    """What Triton, on an H200, tells compilations apart by."""
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import CUDABackend
    from triton.runtime.jit import create_function_from_signature

    looks_at = create_function_from_signature(kernel.signature, kernel.params, CUDABackend(GPUTarget("cuda", 90, 32)))
    _, specialised, options = looks_at(*arguments, num_warps=warps)
    return tuple(specialised), tuple(options.items())


def clashes(launches: list[Launch], key_of: Callable[[tuple[Any, ...]], object] = tuple) -> list[tuple[Any, ...]]:
    """The keys under which one compilation would be used for two."""
    apart: dict[object, set[object]] = {}
    for kernel, arguments, key, warps in launches:
        apart.setdefault(key_of(key), set()).add(wanted(kernel, arguments, warps))
    return [(key, found) for key, found in apart.items() if len(found) > 1]


def off_by_one(tensor: Tensor) -> Tensor:
    """The same values, but not from a multiple of 16 bytes on."""
    moved = torch.empty(tensor.numel() + 1, dtype=tensor.dtype)[1:].view(tensor.shape)
    assert moved.data_ptr() % 16
    return moved.copy_(tensor)


@pytest.fixture(scope="module")
def launches() -> Launches:
    found: Launches = {}

    def recorded(
        kernel: Any, grid: object, arguments: tuple[Any, ...], device: object, key: tuple[Any, ...], *, warps: int
    ) -> None:
        found.setdefault(key[0], []).append((kernel, arguments, key, warps))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ops, "launch", recorded)
        patch.setattr(fused_launch, "launch", recorded)
        call_the_builder(patch)
        call_links_mask_and_commit(patch)
        call_the_verify()
    return found


def call_the_builder(patch: pytest.MonkeyPatch) -> None:
    logits = torch.zeros(2, 3, 272)
    wide = torch.zeros(2, 3, 1024)
    far = torch.empty_strided((1, 2, 272), (2**33, 2**32, 1), device="meta")
    shapes = [(2, 3, 271), (2, 3, 16), (2, 3, 1), (2, 1, 272), (2, 16, 272), (1, 1, 5000), (2, 3, 70000)]
    others = [off_by_one(logits), wide[..., :272], wide[..., :288], torch.zeros(2, 3, 273)[..., :272], far]
    others += [logits.to(dtype) for dtype in (torch.bfloat16, torch.float16, torch.float64)]
    for given in (logits, *others, *map(torch.zeros, shapes)):
        kernels.topk_tokens(given, 1, 1.0)
    for branch in (2, 3, 4, 16, 17):
        kernels.topk_tokens(logits, branch, 1.0)
    for temperatures in (0.5, torch.ones(2), off_by_one(torch.ones(2)), torch.ones(2, dtype=torch.float64)):
        kernels.topk_tokens(logits, 1, temperatures)
    for name, value in (("CHUNK", 16), ("ROWS", 2)):
        with patch.context() as smaller:
            smaller.setattr(ops, name, value)
            kernels.topk_tokens(logits, 1, 1.0)

    for depth, branch, budget in ((3, 4, 12), (3, 4, 15), (3, 4, 16), (1, 1, 1), (1, 2, 1), (4, 4, 64), (16, 4, 12)):
        plan = candidate_pairs(depth, branch, budget, torch.device("cpu"))
        tables = (plan.parent, plan.token, plan.pair_starts, plan.entry_starts, plan.depth)
        logps, roots = torch.zeros(2, depth, branch), torch.zeros(2).long()
        tokens = logps.long()
        for given in (
            (tokens, logps, roots),
            (off_by_one(tokens), off_by_one(logps), off_by_one(roots)),
            (tokens.int(), logps, roots),
            (tokens, logps.double(), roots),
            (tokens, logps, roots.int()),
        ):
            kernels.select_nodes(*given, tables, plan.widest, budget, budget + 1)
        kernels.select_nodes(tokens, logps, roots, [t.int() for t in tables], plan.widest, budget, budget + 1)


def call_links_mask_and_commit(patch: pytest.MonkeyPatch) -> None:
    for q in (1, 2, 15, 16, 17, 300):
        parents, weights, sizes = torch.zeros(2, q).long(), torch.zeros(2, q), torch.ones(2).long()
        kernels.link_nodes(parents, weights, sizes)
        kernels.link_nodes(off_by_one(parents), off_by_one(weights), off_by_one(sizes))
        kernels.link_nodes(parents.int(), weights, sizes)
        kernels.link_nodes(parents, weights.double(), sizes)
        kernels.link_nodes(parents, weights, sizes.int())
        with patch.context() as smaller:
            smaller.setattr(ops, "PAIRS_PER_PROGRAM", 64)
            kernels.link_nodes(parents, weights, sizes)
        for key_len in (1, 16, 17, 5000):
            for dtype in kernels.MASK_DTYPES:
                kernels.tree_mask(parents, sizes, key_len, dtype)
            kernels.tree_mask(off_by_one(parents), off_by_one(sizes), key_len, torch.float32)
            kernels.tree_mask(parents.int(), sizes, key_len, torch.float32)
            kernels.tree_mask(parents, sizes.int(), key_len, torch.float32)
        with patch.context() as smaller:
            smaller.setattr(ops, "MASK_BLOCK", 16)
            kernels.tree_mask(parents, sizes, 20, torch.float32)
    for bs, q, length in ((2, 17, 8), (1, 1, 1), (16, 16, 16), (2, 17, 9), (2, 17, 1)):
        walked = [torch.zeros(n, dtype=torch.int32) for n in ((bs * q,), (bs, length), (bs,))]
        walked.append(torch.zeros(bs).long())
        kernels.map_accepted(*walked, q)
        kernels.map_accepted(*map(off_by_one, walked), q)
        for place, part in enumerate(walked):
            other = torch.int64 if part.dtype == torch.int32 else torch.int32
            kernels.map_accepted(*walked[:place], part.to(other), *walked[place + 1 :], q)


def call_the_verify() -> None:
    smaller = fused.Sizes(lanes=1024)
    for bs, q, depth in ((2, 17, 8), (1, 1, 0), (1, 1, 1), (16, 16, 15), (2, 17, 16)):
        node, each = torch.zeros(bs, q).long(), torch.zeros(bs)
        tree = DraftTree(node, node, node, node.float(), each.long(), depth)
        tables = RetrieveTables(node, node, node)
        coins = (node.float(), each)
        sampling = fused.SamplingTensors(each, each.int(), each, each)
        apart = fused.SamplingTensors(*map(off_by_one, (each, each.int(), each, each)))
        rows = torch.zeros(bs, q, 272)
        wide = torch.zeros(bs, q, 1024)
        far = torch.empty_strided((bs, q, 272), (2**40, 2**32, 1), device="meta")
        others = [off_by_one(rows), wide[..., :272], torch.zeros(bs, q, 273)[..., :272], far]
        others += [rows.transpose(0, 1).contiguous().transpose(0, 1), rows.bfloat16(), rows.half()]
        others += [torch.zeros(bs, q, vocab) for vocab in (1, 16, 271, 5000, 151936)]
        for given in (rows, *others):
            fused.sample(tree, tables, given, sampling, *coins)
            fused.verify(tree, tables, given, *coins)
        fused.sample(tree, tables, rows, apart, *map(off_by_one, coins), status=off_by_one(each.int()))
        for changed in ((coins[0].double(), each), (coins[0], each.double())):
            fused.sample(tree, tables, rows, sampling, *changed)
            fused.verify(tree, tables, rows, *changed)
        for sizes in (smaller, replace(smaller, warps=8), replace(smaller, topp_candidates=100)):
            fused.sample(tree, tables, rows, sampling, *coins, sizes=sizes)


KERNELS = {
    "chunk_maxima": 15,
    "topk_from_chunks": 15,
    "select_nodes": 30,
    "link_nodes": 8,
    "write_tree_mask": 6,
    "map_accepted": 15,
    "fused_verify": 20,
}
LOGITS = {"chunk_maxima": ["logits"], "topk_from_chunks": ["logits"], "fused_verify": ["rows"]}


@pytest.mark.parametrize("name", KERNELS)
def test_no_key_stands_for_two_compilations(name: str, launches: Launches) -> None:
    found = launches[name]
    assert clashes(found) == []
    different = {wanted(kernel, arguments, warps) for kernel, arguments, _, warps in found}
    assert len(different) >= KERNELS[name], "the calls must differ for this to mean anything"


def test_every_kernel_was_called(launches: Launches) -> None:
    assert launches.keys() == KERNELS.keys()


@pytest.mark.parametrize("name", KERNELS)
def test_only_where_logits_lie_does_triton_look_at(name: str, launches: Launches) -> None:
    """So the room that a call allocates, and what it is given beside the logits, may lie anywhere."""
    kernel, arguments, _, warps = launches[name][0]
    looked_at = []
    for place, parameter in enumerate(kernel.params):
        if isinstance(arguments[place], Tensor):
            moved = (*arguments[:place], off_by_one(arguments[place]), *arguments[place + 1 :])
            if wanted(kernel, moved, warps) != wanted(kernel, arguments, warps):
                looked_at.append(parameter.name)
    assert looked_at == {"chunk_maxima": ["logits"], "topk_from_chunks": ["logits"], "fused_verify": ["rows"]}.get(
        name, []
    )


@pytest.mark.parametrize("name", KERNELS)
def test_a_part_left_out_would_be_seen(name: str, launches: Launches) -> None:
    """The calls differ enough to show it: of each key at least three parts alone keep compilations apart."""
    found = launches[name]

    def without(part: int) -> Callable[[tuple[Any, ...]], object]:
        return lambda key: (*key[:part], *key[part + 1 :])

    needed = [part for part in range(1, len(found[0][2])) if clashes(found, without(part))]
    assert len(needed) >= 3
