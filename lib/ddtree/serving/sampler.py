"""Sample the accepted path of a served batch with one backend, chosen and self-tested when the server starts.

There is no silent argmax. "fused" goes from logits to tokens without waiting for the device; "sgl" and "reference" wait
at least once a round. Non-finite logits are reported one round late, so that nothing waits for their status."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from typing import Any

import torch
from torch import Tensor

from ddtree.backends import fused
from ddtree.retrieve import RetrieveTables, compile_retrieve
from ddtree.sampling import SamplingParams
from ddtree.tree import DraftTree
from ddtree.verify import BackendUnavailableError, VerifyResult, backend_report, sample_tree, verify_tree_greedy

SEED_ATTRIBUTE = "ddtree_seed"  # of SGLang's Req
TOP_K_ALL = 1 << 30  # SGLang's top_k for "off"; its request at temperature 0 is temperature 1 with top_k 1


def choose_backend(name: str, device: torch.device | str) -> str:
    """`name`, or for "auto" the best that passed its self-test, without the reference, which runs on the host.

    Raises BackendUnavailableError with every backend's reason: a server that cannot sample must not start.
    """
    statuses = {status.name: status for status in backend_report(device)}
    candidates = [key for key in statuses if key != "reference"] if name == "auto" else [name]
    for key in candidates:
        if key in statuses and statuses[key].usable:
            return key
    reasons = "; ".join(f"{key}: {status.reason}" for key, status in statuses.items())
    raise BackendUnavailableError(
        f'DDTREE_BACKEND "{name}" gives no sampling kernel on {device} ({reasons}). A server without one could only '
        "take the argmax at every temperature, so it does not start."
    )


@dataclass(slots=True)
class TreeSampler:
    """Samples a path of each tree with `backend`."""

    backend: str
    _source: tuple[Tensor, ...] = field(default=(), init=False)
    _converted: fused.SamplingTensors | None = field(default=None, init=False)

    def sample(
        self,
        tree: DraftTree,
        tables: RetrieveTables,
        logits: Tensor,
        batch_info: Any,
        requests: Sequence[Any],
        coins: tuple[Tensor, Tensor],
    ) -> tuple[VerifyResult, Tensor | None]:
        """The accepted paths by `logits` [bs, q, V], and a status int32 [bs] on the device ("fused" only, else None).

        `batch_info` is SGLang's SamplingBatchInfo (on the device), `requests` are the SamplingParams of its requests
        (on the host). The status is 0, or 1 + the node whose logits are not finite. The path of such a request ends
        at that node and its final token stays -1; the caller must not look that token up, and must abort the request.
        """
        if self.backend == "fused":
            *result, status = fused.sample(tree, tables, logits, self._sampling_tensors(batch_info), *coins)
            return VerifyResult(*result), status
        if batch_info.is_all_greedy:
            return verify_tree_greedy(tree, tables, logits.argmax(dim=-1)), None
        return sample_tree(tree, tables, logits, sampling_params(requests), *coins, backend=self.backend), None

    def _sampling_tensors(self, batch_info: Any) -> fused.SamplingTensors:
        """Converted once a batch: SGLang makes new tensors when requests come or go, and does not write into them."""
        source = (batch_info.temperatures, batch_info.top_ks, batch_info.top_ps, batch_info.min_ps)
        if self._converted is None or any(a is not b for a, b in zip(source, self._source, strict=True)):
            self._source, self._converted = source, sampling_tensors(batch_info)
        return self._converted


def sampling_tensors(batch_info: Any) -> fused.SamplingTensors:
    """SGLang's SamplingBatchInfo as the fused kernel reads it, on the device."""
    return fused.SamplingTensors(
        temperature=torch.where(batch_info.top_ks == 1, 0.0, batch_info.temperatures.view(-1)),
        top_k=torch.where(batch_info.top_ks >= TOP_K_ALL, 0, batch_info.top_ks),
        top_p=batch_info.top_ps,
        min_p=batch_info.min_ps,
    )


def sampling_params(requests: Sequence[Any]) -> list[SamplingParams]:
    """The library's SamplingParams of each of SGLang's."""
    return [
        SamplingParams(
            temperature=0.0 if p.top_k == 1 else p.temperature,
            top_k=0 if p.top_k >= TOP_K_ALL else p.top_k,
            top_p=p.top_p,
            min_p=p.min_p,
        )
        for p in requests
    ]


@lru_cache(maxsize=64)
def root_only_tree(batch_size: int, device: torch.device) -> tuple[DraftTree, RetrieveTables]:
    """Trees without drafts, for any batch of this size: a sampler reads nothing of a root but that it has no child."""
    tree = DraftTree.from_parents([[0]] * batch_size, [[-1]] * batch_size, [[0.0]] * batch_size).to(device)
    return tree, compile_retrieve(tree)


class RequestSeeds:
    """The random seed of each request: its own, or one drawn when it is first seen.

    `engine_seed` is the server's --random-seed: a server that gets the same requests in the same order draws the same.
    """

    def __init__(self, engine_seed: int) -> None:
        self.generator = torch.Generator().manual_seed(engine_seed)
        self._uploaded: tuple[tuple[int, ...], Tensor] | None = None

    def of(self, requests: Sequence[Any], device: torch.device | str) -> Tensor:
        """int64 [bs] on `device`, uploaded without waiting for the device, and only if the batch has changed."""
        seeds = tuple(self._seed(request) for request in requests)
        if self._uploaded is None or self._uploaded[0] != seeds:
            host = torch.tensor(seeds, dtype=torch.int64)
            if torch.device(device).type == "cuda":
                host = host.pin_memory()
            self._uploaded = seeds, host.to(device, non_blocking=True)
        return self._uploaded[1]

    def _seed(self, request: Any) -> int:
        seed = getattr(request, SEED_ATTRIBUTE, None)
        if seed is None:
            given = request.sampling_params.sampling_seed
            seed = self._draw() if given is None else _as_int64(given)
            setattr(request, SEED_ATTRIBUTE, seed)
        return int(seed)

    def _draw(self) -> int:
        return int(torch.randint(-(2**63), 2**63 - 1, (1,), generator=self.generator))


def _as_int64(seed: int) -> int:
    """`seed` modulo 2^64, in the range of int64."""
    return (seed + 2**63) % 2**64 - 2**63


class NonFiniteMonitor:
    """Copies the sampler's statuses to the host without waiting, and aborts requests with non-finite logits."""

    def __init__(self) -> None:
        self.in_flight: deque[tuple[Callable[[], bool], Tensor, list[Any]]] = deque()

    def record(self, status: Tensor, requests: Sequence[Any]) -> None:
        """Start the copy of `status` (int32 [bs] on the device, as `TreeSampler.sample` gives it)."""
        if status.device.type != "cuda":
            self.in_flight.append((lambda: True, status.clone(), list(requests)))
            return
        host = torch.empty(status.shape, dtype=status.dtype, pin_memory=True)
        host.copy_(status, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
        self.in_flight.append((arrived.query, host, list(requests)))

    def abort_reported(self) -> None:
        """Abort the requests whose status has arrived and says that their logits are not finite."""
        while self.in_flight and self.in_flight[0][0]():
            _, status, requests = self.in_flight.popleft()
            for code, request in zip(status.tolist(), requests, strict=True):
                if code and not request.finished():
                    _abort(request, node=code - 1)


def _abort(request: Any, node: int) -> None:
    from sglang.srt.managers.schedule_batch import FINISH_ABORT

    request.to_finish = FINISH_ABORT(
        f"the target's logits at node {node} of this request's tree are not finite, so there is no distribution to "
        "sample from.",
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "InternalServerError",
    )
