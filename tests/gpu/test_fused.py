"""The fused kernel on a GPU: the reference's tokens on 10,000 trees, real vocabularies, graphs, no waiting."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from ddtree.backends import fused, reference
from ddtree.backends.registry import resolve
from ddtree.retrieve import RetrieveTables, compile_retrieve
from ddtree.sampling import NonFiniteLogitsError, SamplingParams
from ddtree.tree import DraftTree
from ddtree.verify import VerifyResult, backend_report, sample_tree, verify_tree
from loops import for_each
from oracles import children_of, emitted, filtered64, random_trees
from torch import Tensor
from wording import names

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

TIE = 1e-5  # float32 rounding of x / T for |x / T| of some tens, on either side
BATCH, BATCHES = 250, 40
# A compilation of the kernel takes 5 to 13 s. It depends on the power of two that holds a row's chunks and on what 16
# divides (vocabulary, strides, address), so small vocabularies here are of two kinds, but where a test needs a third.
ODD, EVEN = 500, 400
VOCABS = (300, 340, EVEN, 450, ODD)
CHOICES = (
    SamplingParams(0.6, 40, 0.95),
    SamplingParams(1.0),
    SamplingParams(0.0),
    SamplingParams(0.8, 0, 0.9),
    SamplingParams(1.0, 3),
    SamplingParams(1.5, 200, 0.9, 0.01),
    SamplingParams(1.0, 0, 1.0, 0.05),
    SamplingParams(4.0, 0, 0.99),
    SamplingParams(0.7, 0, 0.95, 0.02),
    SamplingParams(1.0, 5000),
)


@pytest.fixture(scope="module", autouse=True)
def _kernel_is_there() -> None:
    reason = fused.missing("cuda")
    if reason is not None:
        pytest.skip(reason)


@contextmanager
def nothing_waits() -> Iterator[None]:
    """Inside, whatever waits for the device raises."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def on_gpu(tree: DraftTree) -> tuple[DraftTree, RetrieveTables]:
    moved = tree.to("cuda")
    return moved, compile_retrieve(moved)


def random_case(seed: int, bs: int, vocab: int, *, nodes: int = 17) -> tuple[DraftTree, Tensor, Tensor, Tensor]:
    """Random trees whose drafts are likely, so that walks go deep; logits, coins and final coins on the GPU."""
    tree = random_trees(np.random.default_rng(seed), bs, most_nodes=nodes, vocab=vocab, spare=seed % 2)
    generator = torch.Generator("cuda").manual_seed(seed)
    logits = torch.randn(bs, tree.width, vocab, device="cuda", generator=generator) * 2
    drafted = (tree.parents >= 0).nonzero(as_tuple=True)
    children = (drafted[0].cuda(), tree.parents[drafted].cuda(), tree.tokens[drafted].cuda())
    logits[children] += math.log(vocab) + 2  # about as much as all other tokens together
    coins = torch.rand(bs, tree.width, device="cuda", generator=generator)
    return tree, logits, coins, torch.rand(bs, device="cuda", generator=generator)


def nearest_tie(
    tree: DraftTree, row: int, path: list[int], logits: Tensor, sampling: SamplingParams, coins: Tensor, final: float
) -> float:
    """Distance on the path of a coin to a running sum, of a filter to a token's mass, or of two logits at a cut."""
    distances: list[float] = []
    tokens: list[int] = []
    probs = np.zeros(0)
    for node in path:
        tokens = [int(tree.tokens[row, child]) for child in children_of(tree, row, node)]
        values = logits[row, node].double()
        k = sampling.top_k
        if 0 < k < len(values):
            top = (values / max(sampling.temperature, 1e-5)).topk(k + 1).values
            distances.append(float(top[-2] - top[-1]))
        distribution = filtered64(values.tolist(), sampling.temperature, k, sampling.top_p, sampling.min_p)
        probs = distribution.probs
        distances += [distribution.margin, *np.abs(probs[tokens].cumsum() - float(coins[row, node]))]
    rest = probs.copy()
    rest[tokens] = 0
    if rest.sum() > 0:
        distances += np.abs(rest.cumsum() / rest.sum() - final).tolist()
    return min(distances)


def compare(
    tree: DraftTree, logits: Tensor, requests: list[SamplingParams], coins: Tensor, finals: Tensor
) -> tuple[VerifyResult, int]:
    """The kernel's result, once it is the reference's in every row that is no tie, and how many rows are."""
    moved, tables = on_gpu(tree)
    sampling = fused.SamplingTensors.from_requests(requests, "cuda")
    *parts, status = fused.sample(moved, tables, logits, sampling, coins, finals)
    found = VerifyResult(*(part.cpu() for part in parts))
    assert not status.any()
    here = logits.cpu()
    right = VerifyResult(*reference.sample(tree, compile_retrieve(tree), here, requests, coins.cpu(), finals.cpu()))
    width, ties = tree.width, 0
    tokens = [emitted(result, width) for result in (right, found)]
    for row in range(tree.batch_size):
        if tokens[0][row] == tokens[1][row]:
            assert found.accept_index[row].tolist() == right.accept_index[row].tolist()
            continue
        ties += 1
        path = [flat - row * width for flat in right.accept_index[row].tolist() if flat >= 0]
        gap = nearest_tie(tree, row, path, here, requests[row], coins.cpu(), float(finals[row]))
        assert gap < TIE, (row, requests[row], tokens[0][row], tokens[1][row], gap)
    return found, ties


def test_it_proved_itself_and_is_what_auto_takes() -> None:
    status = next(status for status in backend_report("cuda") if status.name == "fused")
    assert status.usable, status.reason
    assert resolve("auto", torch.device("cuda")) == "fused"


@for_each("seed", range(BATCHES))
def test_random_trees_give_the_reference_tokens(seed: int) -> None:
    tree, logits, coins, finals = random_case(seed, BATCH, VOCABS[seed % 5])
    logits = logits.to((torch.float32, torch.bfloat16, torch.float16)[seed % 3])
    requests = [CHOICES[(row + seed) % len(CHOICES)] for row in range(BATCH)]
    found, ties = compare(tree, logits, requests, coins, finals)
    assert ties <= 2, "ties are rare"
    assert int(found.accept_count.max()) >= 3, "some walk must go deep for this to mean anything"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("vocab", [49152, 151936, 50257])
def test_real_vocabularies(vocab: int, dtype: torch.dtype) -> None:
    tree, logits, coins, finals = random_case(7, 2 * len(CHOICES), vocab, nodes=9)
    requests = [CHOICES[row % len(CHOICES)] for row in range(tree.batch_size)]
    _, ties = compare(tree, logits.to(dtype), requests, coins, finals)
    assert ties <= 1


@for_each("seed", range(4))
def test_from_probabilities_coins_on_the_running_sums_agree(seed: int) -> None:
    """Rows and coins in eighths: most coins are ties, zero included, and sums are exact."""
    rng = np.random.default_rng(seed)
    tree = random_trees(rng, 200, most_nodes=8, vocab=4)
    probs = torch.tensor(rng.multinomial(8, [0.25] * 4, size=(200, tree.width)) / 8).float()
    coins, finals = (torch.tensor(rng.integers(8, size=shape) / 8).float() for shape in ((200, tree.width), 200))
    right = verify_tree(tree, compile_retrieve(tree), probs, coins, finals, backend="reference")
    moved, tables = on_gpu(tree)
    found = verify_tree(moved, tables, probs.cuda(), coins.cuda(), finals.cuda(), backend="fused")
    assert torch.equal(found.predict.cpu(), right.predict)
    assert torch.equal(found.accept_index.cpu(), right.accept_index)
    assert torch.equal(found.accept_count.cpu(), right.accept_count)


@pytest.mark.parametrize(
    ("root", "coin"), [({0: 0.5, 5: 0.3, 6: 0.2}, 0.0), ({3: 0.6, 5: 0.399999}, 0.9999999), ({3: 0.6, 9: 0.4}, 0.3)]
)
@pytest.mark.parametrize("final", [0.05, 0.3, 0.8, 0.99999994])
def test_traps_of_the_stock_op_are_none_here(root: dict[int, float], coin: float, final: float) -> None:
    tree = DraftTree.from_parents([[9, 3, 5, 2]], [[-1, 0, 0, 1]], [[0.0, -0.5, -1.0, -0.9]])
    probs = torch.full((1, 4, 10), 0.1)
    probs[0, 0] = torch.tensor([root.get(token, 0.0) for token in range(10)])
    coins, finals = torch.tensor([[coin, 0.55, 0.55, 0.55]]), torch.tensor([final])
    right = verify_tree(tree, compile_retrieve(tree), probs, coins, finals, backend="reference")
    moved, tables = on_gpu(tree)
    found = verify_tree(moved, tables, probs.cuda(), coins.cuda(), finals.cuda(), backend="fused")
    assert emitted(found, 4) == emitted(right, 4)


def test_equal_logits_are_cut_at_the_lower_ids() -> None:
    vocab, finals = 151936, torch.tensor([0.0, 0.5, 0.99999994], device="cuda")
    tree, tables = on_gpu(DraftTree.from_parents([[0]] * 3, [[-1]] * 3, [[0.0]] * 3))
    equal = torch.zeros(1, device="cuda").expand(3, 1, vocab).contiguous()
    equal[..., 100:200] = -0.0  # equal, too
    coins = torch.full((3, 1), 0.5, device="cuda")
    for sampling, kept in (
        (SamplingParams(top_k=40), 40),
        (SamplingParams(top_k=100_000), 100_000),
        (SamplingParams(top_p=0.25 - 1e-7), vocab // 4),
    ):
        result = sample_tree(tree, tables, equal, sampling, coins, finals, backend="fused")
        assert result.predict.tolist() == [0, kept // 2, kept - 1]


def test_offsets_go_beyond_32_bits() -> None:
    bs, q, vocab = 1700, 17, 151936
    assert bs * q * vocab > 2**32
    small, logits, coins, finals = random_case(9, 4, vocab)
    wide = DraftTree.from_parents(
        *zip(*[([0] * q, [-1, *range(q - 1)], [-float(i) for i in range(q)])] * bs, strict=True)
    )
    q_small = small.width
    everything = torch.zeros(bs, q, vocab, dtype=torch.bfloat16, device="cuda")
    last = torch.arange(bs - 4, bs)
    parts = [part.clone() for part in (wide.tokens, wide.parents, wide.depths, wide.node_logws, wide.sizes)]
    sources = (small.tokens, small.parents, small.depths, small.node_logws, small.sizes)
    for part, source in zip(parts, sources, strict=True):
        if part.ndim == 1:
            part[last] = source
        else:
            part[last, : min(q, q_small)] = source[:, :q]
    tree = DraftTree(*parts, max_depth=q - 1)
    everything[last.cuda(), : min(q, q_small)] = logits[:, :q].bfloat16()
    all_coins = torch.full((bs, q), 0.5, device="cuda")
    all_coins[last.cuda(), : min(q, q_small)] = coins[:, :q]
    all_finals = torch.full((bs,), 0.5, device="cuda")
    all_finals[last.cuda()] = finals
    moved, tables = on_gpu(tree)
    sampling = SamplingParams(0.6, 40, 0.95)
    result = sample_tree(moved, tables, everything, sampling, all_coins, all_finals, backend="fused")
    right = reference.sample(
        small, compile_retrieve(small), logits.bfloat16().cpu(), [sampling] * 4, coins.cpu(), finals.cpu()
    )
    assert emitted(result, q)[-4:] == emitted(VerifyResult(*right), q_small)


def test_strided_batches_are_read_in_place() -> None:
    bs = 41
    tree, logits, coins, finals = random_case(11, bs, ODD)
    requests = [CHOICES[row % len(CHOICES)] for row in range(bs)]
    moved, tables = on_gpu(tree)
    plain = sample_tree(moved, tables, logits, requests, coins, finals, backend="fused")
    padded = torch.full((bs, tree.width, 512), 50.0, device="cuda")
    padded[..., :ODD] = logits
    nodes_first = logits.transpose(0, 1).contiguous().transpose(0, 1)
    for strided in (padded[..., :ODD], nodes_first):
        result = sample_tree(moved, tables, strided, requests, coins, finals, backend="fused")
        assert torch.equal(result.predict, plain.predict)
        assert torch.equal(result.accept_index, plain.accept_index)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_kernel_for_aligned_rows_is_not_used_for_others(dtype: torch.dtype) -> None:
    """Same shapes and strides, one element further on in memory, after a call that left its kernel to be used again."""
    tree, logits, coins, finals = random_case(12, 40, EVEN)
    requests = [CHOICES[row % len(CHOICES)] for row in range(40)]
    moved, tables = on_gpu(tree)
    aligned = logits.to(dtype)
    shifted = torch.empty(aligned.numel() + 1, dtype=dtype, device="cuda")[1:].view_as(aligned).copy_(aligned)
    assert aligned.data_ptr() % 16 == 0
    assert shifted.data_ptr() % 16 != 0
    sampling = fused.SamplingTensors.from_requests(requests, "cuda")
    right, again, found = (
        fused.sample(moved, tables, rows, sampling, coins, finals) for rows in (aligned, aligned, shifted)
    )
    for part, expected in zip((*again, *found), (*right, *right), strict=True):
        assert torch.equal(part, expected)


def test_row_that_is_no_distribution_is_named() -> None:
    tree, tables = on_gpu(DraftTree.from_parents([[9, 3]] * 2, [[-1, 0]] * 2, [[0.0, -0.5]] * 2))
    logits = torch.zeros(2, 2, ODD, device="cuda")
    logits[:, 0, 3] = 50.0
    logits[1, 1, 377] = torch.nan
    coins, finals = torch.full((2, 2), 0.5, device="cuda"), torch.full((2,), 0.5, device="cuda")
    with pytest.raises(NonFiniteLogitsError, match=names("request 1 node 1")):
        sample_tree(tree, tables, logits, SamplingParams(top_k=40), coins, finals, backend="fused")


def test_status_may_be_memory_of_the_host() -> None:
    tree, tables = on_gpu(DraftTree.from_parents([[9, 3]] * 3, [[-1, 0]] * 3, [[0.0, -0.5]] * 3))
    logits = torch.zeros(3, 2, ODD, device="cuda")
    logits[1, 0, 77] = torch.nan
    sampling = fused.SamplingTensors.from_requests([SamplingParams(top_k=40)] * 3, "cuda")
    coins, finals = torch.full((3, 2), 0.5, device="cuda"), torch.full((3,), 0.5, device="cuda")
    for _ in range(2):  # compiled, and called again
        status = torch.full((3,), 7, dtype=torch.int32).pin_memory()
        found = fused.sample(tree, tables, logits, sampling, coins, finals, status=status)
        torch.cuda.current_stream().synchronize()
        assert found[3] is status
        assert status.tolist() == [0, 1, 0]


def test_nothing_waits_and_a_graph_replays_on_other_inputs() -> None:
    requests = [CHOICES[row % len(CHOICES)] for row in range(40)]
    cases = [random_case(seed, 40, ODD) for seed in (20, 22)]
    width = max(case[0].width for case in cases)
    cases = [
        (
            repadded(tree, width),
            *(torch.nn.functional.pad(t, pad) for t, pad in zip(rest, pads(width, tree), strict=True)),
        )
        for tree, *rest in cases
    ]
    sampling = fused.SamplingTensors.from_requests(requests, "cuda")
    eager = []
    for tree, *tensors in cases:
        moved, tables = on_gpu(tree)
        fused.sample(moved, tables, tensors[0], sampling, *tensors[1:])  # compiles
        with nothing_waits():
            found = fused.sample(moved, tables, tensors[0], sampling, *tensors[1:])
        eager.append([part.clone() for part in found])
    tree, tables = on_gpu(cases[0][0])
    inputs = [tensor.clone() for tensor in cases[0][1:]]
    sample_tree(tree, tables, inputs[0], requests, *inputs[1:], backend="fused")  # uploads the parameters
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = fused.sample(tree, tables, inputs[0], sampling, *inputs[1:])
        through_the_door = sample_tree(tree, tables, inputs[0], requests, *inputs[1:], backend="fused")
    for number in range(100):  # more batches of parameters than are kept: those that the graph reads must be
        others = [SamplingParams(top_k=1 + number), *requests[1:]]
        sample_tree(tree, tables, inputs[0], others, *inputs[1:], backend="fused")
    for (other, *tensors), right in zip(cases, eager, strict=True):
        moved, moved_tables = on_gpu(other)
        for static, new in (
            (tree.tokens, moved.tokens),
            (tables.next_token, moved_tables.next_token),
            (tables.next_sibling, moved_tables.next_sibling),
            *zip(inputs, tensors, strict=True),
        ):
            static.copy_(new)
        graph.replay()
        for part, expected in zip(outputs, right, strict=True):
            assert torch.equal(part, expected)
        assert torch.equal(through_the_door.predict, right[0])
    assert not torch.equal(eager[0][0], eager[1][0])


def pads(width: int, tree: DraftTree) -> list[tuple[int, ...]]:
    spare = width - tree.width
    return [(0, 0, 0, spare), (0, spare), (0, 0)]


def repadded(tree: DraftTree, width: int) -> DraftTree:
    """The same trees, wider, and as deep as a chain of that width could be."""
    spare = (0, width - tree.width)
    pad = torch.nn.functional.pad
    return DraftTree(
        tokens=pad(tree.tokens, spare),
        parents=pad(tree.parents, spare, value=-1),
        depths=pad(tree.depths, spare),
        node_logws=pad(tree.node_logws, spare, value=-torch.inf),
        sizes=tree.sizes,
        max_depth=width - 1,
    )
