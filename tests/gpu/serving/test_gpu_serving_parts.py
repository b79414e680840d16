"""The parts of a serving round on a GPU: trees from the drafter's graph, moved rows, coins and the sampler."""

from types import SimpleNamespace

import pytest
import torch
from attention_cases import a_case, right
from ddtree import kernels
from ddtree.backends.fused import missing
from ddtree.kernels.round_ops import (
    coins_on_device,
    compact,
    compact_on_device,
    mask_cells,
    write_tree_mask,
    write_tree_mask_on_device,
)
from ddtree.kernels.tree_attention import tree_attention
from ddtree.sampling import step_coins
from ddtree.serving.sampler import TOP_K_ALL as ALL
from ddtree.serving.sampler import TreeSampler, sampling_params
from ddtree.serving.tree_drafter import DraftedBatch, TreeDrafter
from ddtree.verify import sample_tree
from loops import for_each
from torch import Tensor

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

BATCH, BLOCK, WIDTH, HIDDEN, VOCAB = 11, 8, 17, 64, 5003
MASK = 3  # what a block holds behind its root
Shape = tuple[list[int], int, int, int, int]
SHAPES: list[Shape] = [  # prefix lengths, most nodes, heads, KV heads, numbers of a head
    ([5, 130, 64], 9, 9, 3, 64),
    ([0, 40], 17, 4, 4, 24),
    ([70, 3], 65, 6, 2, 32),
    ([1100, 1], 17, 8, 1, 128),
    ([300, 300, 2000], 65, 32, 8, 128),
    ([50, 700], 33, 4, 2, 256),
]


def a_drafter() -> TreeDrafter:
    rng = torch.Generator("cuda").manual_seed(1)
    head = torch.randn(VOCAB, HIDDEN, device="cuda", generator=rng)
    drafter = TreeDrafter(head, block=BLOCK, budget=WIDTH - 1, topk_cap=4, temperature=1.0)
    drafter.reserve(BATCH)
    return drafter


def blocks(seed: int, batch: int = BATCH) -> tuple[Tensor, Tensor]:
    """Hidden rows and ids as the drafter's forward has them, one block after another."""
    rng = torch.Generator("cuda").manual_seed(seed)
    ids = torch.full((batch, BLOCK), MASK, device="cuda")
    ids[:, 0] = torch.randint(10, VOCAB, (batch,), device="cuda", generator=rng)
    return torch.randn(batch * BLOCK, HIDDEN, device="cuda", generator=rng) * 0.3, ids


def parts(drafted: DraftedBatch) -> list[Tensor]:
    tree, tables = drafted.tree, drafted.tables
    return [tree.tokens, tree.parents, tree.depths, tree.sizes, tables.next_token, tables.next_sibling, drafted.visible]


def test_replayed_trees_are_those_of_torch_operations_each_under_its_own_root(monkeypatch: pytest.MonkeyPatch) -> None:
    drafter = a_drafter()
    hidden, ids = blocks(2)
    drafter(hidden, ids.flatten())  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drafter(hidden, ids.flatten())
    monkeypatch.setattr(kernels.ops, "run_on", lambda _: False)
    for seed in (3, 4):
        new_hidden, new_ids = blocks(seed)
        hidden.copy_(new_hidden)
        ids.copy_(new_ids)
        graph.replay()
        for batch in (1, 5, BATCH):
            replayed = drafter.read(batch)
            assert torch.equal(replayed.tree.tokens[:, 0], new_ids[:batch, 0])
            right = drafter.draft(new_hidden[: batch * BLOCK], new_ids[:batch, 0])
            assert all(torch.equal(a, b) for a, b in zip(parts(replayed), parts(right), strict=True))


@for_each("seed", range(6))
def test_rows_move_as_in_a_fresh_gather(seed: int) -> None:
    rng = torch.Generator("cuda").manual_seed(seed)
    bs = 1 + 7 * seed
    buffers = [torch.randn(bs * 40, 3, 64, device="cuda", generator=rng).bfloat16() for _ in range(8)]
    right = [buffer.clone() for buffer in buffers]
    slots = torch.randperm(bs * 40, device="cuda", generator=rng)[: bs * WIDTH].view(bs, WIDTH)
    path = torch.full((bs, BLOCK), -1, device="cuda")
    path[:, 0] = 0
    for row in path:
        kept = int(torch.randint(0, BLOCK, (), generator=rng, device="cuda"))
        row[1 : kept + 1] = torch.randperm(WIDTH - 1, device="cuda", generator=rng)[:kept].sort().values + 1
    compact(right, slots, path)
    pointers = torch.tensor([buffer.data_ptr() for buffer in buffers], dtype=torch.uint64, device="cuda")
    compact_on_device(pointers, buffers[0][0].nbytes, slots, path)
    assert all(torch.equal(a, b) for a, b in zip(buffers, right, strict=True))


@pytest.mark.parametrize("width", [1, WIDTH, 65])
def test_coins_are_those_of_the_cpu(width: int) -> None:
    seeds, prefix = torch.randint(-(2**62), 2**62, (64,)), torch.randint(1, 5000, (64,))
    drawn = coins_on_device(seeds.cuda(), prefix.cuda(), width)
    right = step_coins(seeds.tolist(), prefix.tolist(), width)
    assert all(torch.equal(a, b.cpu()) for a, b in zip(right, drawn, strict=True))


def test_the_mask_is_written_as_by_torch_operations() -> None:
    hidden, ids = blocks(7)
    visible = a_drafter().draft(hidden, ids[:, 0]).visible
    lengths = torch.randint(1, 300, (BATCH,), device="cuda")
    cells = mask_cells(int(lengths.sum()), BATCH, WIDTH)
    right, found = (torch.full((cells,), 9, dtype=torch.uint8, device="cuda") for _ in range(2))
    write_tree_mask(right, visible, lengths)
    write_tree_mask_on_device(found, visible, lengths)
    assert torch.equal(found, right)


@pytest.mark.parametrize(
    ("dtype", "off"), [(torch.float32, 2e-5), (torch.float16, 2e-3), (torch.bfloat16, 2e-2)], ids=str
)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_tree_attention_is_a_softmax(shape: Shape, dtype: torch.dtype, off: float) -> None:
    lengths, nodes, heads, kv_heads, size = shape
    sizes = {"most_nodes": nodes, "heads": heads, "kv_heads": kv_heads, "size": size}
    case = a_case(nodes, lengths, **sizes, dtype=dtype, device="cuda")
    torch.testing.assert_close(case.answer().double(), right(case), atol=off, rtol=off)


def test_a_request_s_attention_is_its_own_in_every_batch() -> None:
    """In float32: keys fall into two parts in a batch of 60 and into sixteen alone, which add up in another order."""
    lengths = [300, 40, 1000] * 20
    case = a_case(5, lengths, most_nodes=33, heads=9, kv_heads=3, size=64, device="cuda")
    together, nodes = case.answer(), case.visible.shape[1]
    bounds, starts = case.prefix[0].tolist(), case.sight[1].tolist()
    for b in (0, 31, 59):
        own = slice(b * nodes, (b + 1) * nodes)
        indptr = torch.tensor([0, lengths[b]], dtype=torch.int32, device="cuda")
        sight = case.sight[0][starts[b] :], torch.zeros(2, dtype=torch.int64, device="cuda")
        prefix = indptr, case.prefix[1][bounds[b] : bounds[b + 1]]
        rows = case.q[own], case.k[own], case.v[own]
        alone = tree_attention(*rows, case.pool, prefix, sight, nodes=nodes, scale=case.scale)
        torch.testing.assert_close(alone, together[own], atol=2e-5, rtol=2e-5)


@pytest.mark.skipif(missing("cuda") is not None, reason="the fused backend cannot run here")
def test_the_sampler_samples_a_mixed_batch_as_the_reference() -> None:
    hidden, ids = blocks(5)
    drafted = a_drafter().draft(hidden, ids[:, 0])
    logits = 3 * torch.randn(BATCH, WIDTH, VOCAB, device="cuda", generator=torch.Generator("cuda").manual_seed(6))
    requests = [
        SimpleNamespace(temperature=t, top_k=k, top_p=p, min_p=m)
        for t, k, p, m in [(1.0, 1, 1.0, 0.0), (0.6, ALL, 1.0, 0.0), (1.3, 20, 0.9, 0.0), (1.0, ALL, 1.0, 0.05)] * 3
    ][:BATCH]

    def column(name: str, dtype: torch.dtype) -> Tensor:
        return torch.tensor([getattr(request, name) for request in requests], dtype=dtype, device="cuda")

    sampling = SimpleNamespace(
        temperatures=column("temperature", torch.float32)[:, None], top_ks=column("top_k", torch.int32),
        top_ps=column("top_p", torch.float32), min_ps=column("min_p", torch.float32), is_all_greedy=False,
    )  # fmt: skip
    coins = step_coins(range(BATCH), range(BATCH), WIDTH, device="cuda")
    got, status = TreeSampler("fused").sample(drafted.tree, drafted.tables, logits, sampling, requests, coins)
    right = sample_tree(drafted.tree, drafted.tables, logits, sampling_params(requests), *coins, backend="reference")
    assert status is not None
    assert not bool(status.any())
    assert torch.equal(got.accept_index, right.accept_index)
    assert torch.equal(got.predict, right.predict)
