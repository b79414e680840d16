"""The sampling verify: whatever the tree, the token after a node is distributed as the target's row for that node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ddtree.backends import fused, reference, sgl
from ddtree.retrieve import RetrieveTables, compile_retrieve
from ddtree.sampling import NonFiniteLogitsError, SamplingParams, target_probs
from ddtree.tree import DraftTree

SUM_TOLERANCE = 1e-3  # how far a row of probabilities may sum from 1
Result = tuple[Tensor, Tensor, Tensor]  # predict, accept_index, accept_count
BACKENDS = ("fused", "sgl", "reference")  # best first; "auto" takes the first that proved itself
_IN_GRAPHS: dict[int, fused.SamplingTensors] = {}  # by id, never evicted: a CUDA graph goes on reading its parameters


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """What one verify call accepted, in the layout of the sampling kernels."""

    predict: Tensor  # int32 [bs*q], the token after each node of the accepted path; -1 elsewhere
    accept_index: Tensor  # int32 [bs, max_depth+1], flat indices (b*q + node) from the root on; -1 padded
    accept_count: Tensor  # int32 [bs], accepted drafts, without the root and without the final token


@dataclass(frozen=True, slots=True)
class BackendStatus:
    """Whether a backend can be used on a device, and the reason in one sentence."""

    name: str
    usable: bool
    reason: str


class BackendUnavailableError(RuntimeError):
    """A backend was asked for by name and cannot run here."""


def verify_tree(
    tree: DraftTree,
    tables: RetrieveTables,
    probs: Tensor,
    coins: Tensor,
    final_coins: Tensor,
    *,
    backend: str = "auto",
) -> VerifyResult:
    """Walk each tree once, accepting children by target probability (the target-only rule of EAGLE and SGLang).

    Row i of `probs` judges the children of node i. A child is accepted iff its probability is above 0 and the
    node's coin is below the running sum over its siblings so far; when none is, or at a leaf, the final token is
    drawn by the other coin from the row without the rejected children. A token of probability 0 is never emitted.

    Args:
        probs: float32 [bs, q, V], rows as `target_probs` gives them.
        coins: float32 [bs, q] in [0, 1), one for each node whose children are judged.
        final_coins: float32 [bs] in [0, 1).
        backend: "auto", "fused", "sgl" or "reference".

    Raises:
        ValueError: a shape, dtype, token id or coin out of range; a row with a negative entry or whose sum is not
            within 1e-3 of 1; siblings with one token; links that are not the tree's.
        BackendUnavailableError: the backend named cannot run here.
    """
    _refuse_bad_shapes(tree, tables, probs, coins, final_coins)
    _refuse_bad_values(tree, probs.shape[-1], coins, final_coins)
    if probs.dtype != torch.float32:
        raise ValueError(f"probs are {probs.dtype}; the verify reads float32, as target_probs returns.")
    _refuse_improper_rows(tree, probs)
    _refuse_unsound_tree(tree, tables, probs.shape[-1])
    run = _VERIFY[_resolve(backend, probs.device)]
    return VerifyResult(*run(tree, tables, probs, coins, final_coins))


def sample_tree(
    tree: DraftTree,
    tables: RetrieveTables,
    logits: Tensor,
    sampling: SamplingParams | Sequence[SamplingParams],
    coins: Tensor,
    final_coins: Tensor,
    *,
    backend: str = "auto",
) -> VerifyResult:
    """`verify_tree` from logits [bs, q, V] of any float type: what a decode loop calls.

    `sampling` is one SamplingParams, or one per request; greedy and sampled requests may stand in one batch. The
    tree and its tables are taken to be `build_tree`'s and `compile_retrieve`'s own: nothing here costs a round
    what `verify_tree` spends on looking for cycles and twin siblings.
    "reference" and "fused" normalise only the rows that the walk visits; "sgl" gets every row's `target_probs`.

    "fused" on a GPU waits for the device once, to learn of a row that is no distribution, and under CUDA graph
    capture not at all (call it once before: the first call compiles and uploads the parameters). So coins outside
    [0, 1) and tokens outside the vocabulary, which one must wait to see, are not looked for there: such a token has
    probability 0. What a graph reads of the parameters is kept for as long as the process runs.
    `backends.fused.sample` leaves the waiting to its caller, and the parameters.

    Raises: as `verify_tree`, and NonFiniteLogitsError for a visited row that is no distribution ("sgl": any row).
    """
    _refuse_bad_shapes(tree, tables, logits, coins, final_coins)
    requests = [sampling] * tree.batch_size if isinstance(sampling, SamplingParams) else list(sampling)
    if len(requests) != tree.batch_size:
        raise ValueError(f"sampling has {len(requests)} entries for a batch of {tree.batch_size} requests.")
    chosen = _resolve(backend, logits.device)
    if chosen != "fused" or logits.device.type == "cpu":
        _refuse_bad_values(tree, logits.shape[-1], coins, final_coins)
    if chosen == "fused":
        return _sample_fused(tree, tables, logits, requests, coins, final_coins)
    if chosen == "reference":
        return VerifyResult(*reference.sample(tree, tables, logits, requests, coins, final_coins))
    probs = target_probs(
        logits,
        temperature=[p.temperature for p in requests],
        top_k=[p.top_k for p in requests],
        top_p=[p.top_p for p in requests],
        min_p=[p.min_p for p in requests],
    )
    return VerifyResult(*sgl.verify(tree, tables, probs, coins, final_coins))


def _sample_fused(
    tree: DraftTree,
    tables: RetrieveTables,
    logits: Tensor,
    requests: Sequence[SamplingParams],
    coins: Tensor,
    final_coins: Tensor,
) -> VerifyResult:
    rows = logits if logits.dtype in fused.READ else logits.float()
    sampling = _uploaded(requests, logits.device)
    if _capturing(logits.device):
        _IN_GRAPHS[id(sampling)] = sampling
        return VerifyResult(*fused.sample(tree, tables, rows, sampling, coins, final_coins)[:3])
    # The kernel writes it where the host can read it: a copy would be one more thing to send and to wait for.
    status = torch.empty(tree.batch_size, dtype=torch.int32, pin_memory=logits.is_cuda)
    try:
        result = fused.sample(tree, tables, rows, sampling, coins, final_coins, status=status)[:3]
    finally:  # whatever happens: torch does not know who writes to this memory, and would give it to another
        if logits.is_cuda:
            torch.cuda.current_stream(logits.device).synchronize()
    codes = status.tolist()
    if any(codes):
        raise NonFiniteLogitsError.at(*next((b, code - 1) for b, code in enumerate(codes) if code))
    return VerifyResult(*result)


def _capturing(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _uploaded(requests: Sequence[SamplingParams], device: torch.device) -> fused.SamplingTensors:
    """Kept by value, never by identity of a list, which may change or make room for another at the same address.

    One object for all requests, as a batch often has, is hashed once and not as many times.
    """
    if requests and all(params is requests[0] for params in requests):
        return _uploaded_alike(requests[0], len(requests), device)
    return _uploaded_apart(tuple(requests), device)


@lru_cache(maxsize=64)
def _uploaded_alike(params: SamplingParams, requests: int, device: torch.device) -> fused.SamplingTensors:
    return fused.SamplingTensors.from_requests([params] * requests, device)


@lru_cache(maxsize=64)
def _uploaded_apart(requests: tuple[SamplingParams, ...], device: torch.device) -> fused.SamplingTensors:
    return fused.SamplingTensors.from_requests(requests, device)


def verify_tree_greedy(tree: DraftTree, tables: RetrieveTables, argmax: Tensor) -> VerifyResult:
    """The walk at temperature 0: follow the child that is the target's argmax, int [bs, q], while there is one."""
    bs, q = tree.tokens.shape
    if argmax.shape != (bs, q):
        raise ValueError(f"argmax has shape {list(argmax.shape)}; the tree needs {[bs, q]}.")
    batch = torch.arange(bs, device=tree.tokens.device)
    node = torch.zeros_like(batch)
    walking = torch.ones_like(batch, dtype=torch.bool)
    path = torch.full((bs, tree.max_depth + 1), -1, dtype=torch.int64, device=tree.tokens.device)
    path[:, 0] = 0
    is_child_of = tree.parents[:, None, :] == torch.arange(q, device=tree.tokens.device)[None, :, None]
    wanted = tree.tokens[:, None, :] == argmax[:, :, None]
    matches = is_child_of & wanted  # [bs, node, child]; at most one child a node, siblings differ
    for depth in range(1, tree.max_depth + 1):
        row = matches[batch, node]
        walking = walking & row.any(dim=1)
        node = torch.where(walking, row.int().argmax(dim=1), node)
        path[:, depth] = torch.where(walking, node, -1)
    kept = path >= 0
    flat = tables.index.gather(1, path.clamp(min=0))
    predict = torch.full((bs, q), -1, dtype=torch.int64, device=tree.tokens.device)
    after = argmax.long().gather(1, path.clamp(min=0))
    spare = torch.nn.functional.pad(predict, (0, 1))
    predict = spare.scatter(1, torch.where(kept, path, q), after)[:, :q]
    return VerifyResult(
        predict=predict.reshape(-1).int(),
        accept_index=torch.where(kept, flat, -1).int(),
        accept_count=(kept.sum(dim=1) - 1).int(),
    )


def backend_report(device: torch.device | str = "cpu") -> list[BackendStatus]:
    """Every backend, best first, whether it proved itself on `device`, and why; tried once a process."""
    return [_prove(name, torch.device(device).type) for name in BACKENDS]


_VERIFY = {"fused": fused.verify, "sgl": sgl.verify, "reference": reference.verify}


def _resolve(backend: str, device: torch.device) -> str:
    if backend == "auto":
        # Triton's interpreter proves the kernel right on a CPU, but no one decodes with it unless by name.
        fit = (s.name for s in backend_report(device) if s.usable and (s.name != "fused" or device.type == "cuda"))
        return next(fit)
    if backend not in BACKENDS:
        raise ValueError(f'backend is "{backend}"; it must be "auto", {", ".join(map(repr, BACKENDS))}.')
    status = _prove(backend, device.type)
    if not status.usable:
        raise BackendUnavailableError(f'backend "{backend}" was asked for and cannot run: {status.reason}')
    return backend


@lru_cache
def _prove(name: str, device_type: str) -> BackendStatus:
    if name == "reference":
        return BackendStatus(name, True, "the reference runs in torch on any device")
    reason = (fused if name == "fused" else sgl).missing(device_type)
    if reason is not None:
        return BackendStatus(name, False, reason)
    try:
        for expected, got in _trials(name, device_type):
            if not all(torch.equal(a, b.cpu()) for a, b in zip(expected, got, strict=True)):
                return BackendStatus(name, False, f"its trial run gave {got} where the reference gives {expected}")
    except Exception as error:
        return BackendStatus(
            name, False, f"its trial run failed under torch {torch.__version__}: {type(error).__name__}: {error}"
        )
    return BackendStatus(name, True, "its trial run gave the reference's tokens")


def _trials(name: str, device_type: str) -> Iterator[tuple[Result, Result]]:
    """The tiny case by the reference and by the backend: from probabilities, and "fused" from logits too."""
    tree, probs, *coins = _tiny_case()
    moved = tree.to(device_type)
    tables, moved_tables = compile_retrieve(tree), compile_retrieve(moved)
    on_device = [coin.to(device_type) for coin in coins]
    yield (
        reference.verify(tree, tables, probs, *coins),
        _VERIFY[name](moved, moved_tables, probs.to(device_type), *on_device),
    )
    if name == "fused":
        logits = probs.log()
        requests = [SamplingParams(), SamplingParams(top_p=0.95), SamplingParams(top_k=8)]
        sampling = fused.SamplingTensors.from_requests(requests, device_type)
        yield (
            reference.sample(tree, tables, logits, requests, *coins),
            fused.sample(moved, moved_tables, logits.to(device_type), sampling, *on_device)[:3],
        )


def _tiny_case() -> tuple[DraftTree, Tensor, Tensor, Tensor]:
    """Root, two children, one grandchild: one row accepts both depths, one rejects a child, one draws the rest."""
    tree = DraftTree.from_parents(
        tokens=[[9, 3, 5, 2]] * 3, parents=[[-1, 0, 0, 1]] * 3, node_logws=[[0.0, -0.5, -1.0, -0.9]] * 3
    )
    probs = torch.full((3, 4, 10), 0.1)
    probs[:, 0] = torch.tensor([0, 0, 0, 0.5, 0, 0.3, 0.2, 0, 0, 0])
    probs[:, 1] = torch.tensor([0, 0, 0.6, 0, 0, 0, 0, 0.4, 0, 0])
    coins = torch.tensor([[0.4, 0.5, 0.9, 0.9], [0.7, 0.5, 0.3, 0.9], [0.9, 0.5, 0.3, 0.9]])
    return tree, probs, coins, torch.tensor([0.52, 0.52, 0.52])


def _refuse_bad_shapes(
    tree: DraftTree, tables: RetrieveTables, rows: Tensor, coins: Tensor, final_coins: Tensor
) -> None:
    bs, q = tree.tokens.shape
    if rows.ndim != 3 or rows.shape[:2] != (bs, q):
        raise ValueError(f"rows have shape {list(rows.shape)}; a tree of [{bs}, {q}] nodes needs [{bs}, {q}, V].")
    if coins.shape != (bs, q) or final_coins.shape != (bs,):
        raise ValueError(
            f"coins have shape {list(coins.shape)} and final_coins {list(final_coins.shape)}; they must be "
            f"[{bs}, {q}] and [{bs}]."
        )
    if tables.index.shape != (bs, q):
        raise ValueError(f"tables are for {list(tables.index.shape)} nodes, the tree has [{bs}, {q}].")
    for name, values in (("coins", coins), ("final_coins", final_coins)):
        if values.dtype != torch.float32:
            raise ValueError(f"{name} are {values.dtype}; they must be float32 in [0, 1).")


def _refuse_bad_values(tree: DraftTree, vocab: int, coins: Tensor, final_coins: Tensor) -> None:
    """On a GPU this waits for the device."""
    if tree.batch_size == 0:
        return
    for name, values in (("coins", coins), ("final_coins", final_coins)):
        low, high = values.aminmax()  # NaN fails both comparisons
        if not (low >= 0 and high < 1):
            raise ValueError(
                f"{name} are {values.dtype} from {low.item()} to {high.item()}; they must be float32 in [0, 1)."
            )
    low, high = tree.tokens.aminmax()
    if not (low >= 0 and high < vocab):
        b, node = ((tree.tokens < 0) | (tree.tokens >= vocab)).nonzero()[0].tolist()
        raise ValueError(
            f"request {b}, node {node} has token {tree.tokens[b, node].item()}, outside the target's vocabulary "
            f"of {vocab}."
        )


def _refuse_improper_rows(tree: DraftTree, probs: Tensor) -> None:
    if not probs.numel():
        return
    sums, smallest = probs.sum(dim=-1), probs.amin(dim=-1)
    padding = torch.arange(tree.width, device=probs.device) >= tree.sizes[:, None]  # no walk reads its rows
    proper = padding | (((sums - 1).abs() <= SUM_TOLERANCE) & (smallest >= 0))  # NaN fails both
    if not bool(proper.all()):
        b, node = (~proper).nonzero()[0].tolist()
        raise ValueError(
            f"probs of request {b}, node {node} sum to {sums[b, node].item():g}, the smallest is "
            f"{smallest[b, node].item():g}; a row must sum to 1 and hold nothing below 0."
        )


def _refuse_unsound_tree(tree: DraftTree, tables: RetrieveTables, vocab: int) -> None:
    """ValueError for twin siblings, whose probability would count twice, and for links that are not the tree's.

    A node linked to twice is one of the latter: where there is none, no walk from the root can meet a cycle.
    """
    bs, q = tree.tokens.shape
    nodes = torch.arange(q, device=tree.tokens.device).expand(bs, q)
    drafted = (nodes > 0) & (nodes < tree.sizes[:, None])
    family = torch.where(drafted, tree.parents * vocab + tree.tokens, -1 - nodes)
    family, order = family.sort(dim=1)
    twins = family[:, 1:] == family[:, :-1]
    if bool(twins.any()):
        b, place = twins.nonzero()[0].tolist()
        one, other = sorted(order[b, place : place + 2].tolist())
        raise ValueError(
            f"request {b}: nodes {one} and {other} are siblings with token {tree.tokens[b, one].item()}; siblings "
            "must differ, or that token's probability would count twice."
        )
    links = torch.cat([tables.next_token, tables.next_sibling], dim=1)
    owner = torch.cat([nodes, tree.parents], dim=1)  # whose child a link must lead to
    linked = links != -1
    inside = (links > 0) & (links < tree.sizes[:, None])
    here = torch.where(inside, links, q)
    of_owner = torch.nn.functional.pad(tree.parents, (0, 1), value=-2).gather(1, here) == owner
    times = torch.zeros(bs, q + 1, dtype=torch.int64, device=links.device).scatter_add_(1, here, linked.long())
    wrong = linked & ~(inside & of_owner & (times.gather(1, here) == 1))
    if bool(wrong.any()):
        b, place = wrong.nonzero()[0].tolist()
        name = "next_token" if place < q else "next_sibling"
        raise ValueError(
            f"request {b}: tables.{name} of node {place % q} is {links[b, place].item()}, which is not a link of this "
            "tree (each drafted node is linked to once, by its parent or a sibling); use compile_retrieve(tree)."
        )
    if not torch.equal(tables.index, torch.arange(bs * q, device=links.device).reshape(bs, q)):
        raise ValueError("tables.index is not b * q + i; use compile_retrieve(tree).")
