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


@lru_cache(maxsize=64)
def root_alone(batch_size: int, device: torch.device) -> tuple[DraftTree, RetrieveTables]:
    """Of any batch: nothing of the root is read but that it has no children."""
    tree = DraftTree.from_parents([[0]] * batch_size, [[-1]] * batch_size, [[0.0]] * batch_size).to(device)
    return tree, compile_retrieve(tree)


ATTRIBUTE = "ddtree_seed"


class Seeds:
    """`engine_seed` is the server's --random-seed: the same server asked the same in the same order draws the same."""

    def __init__(self, engine_seed: int) -> None:
        self.generator = torch.Generator().manual_seed(engine_seed)
        self.uploaded: tuple[tuple[int, ...], Tensor] | None = None

    def of(self, requests: Sequence[Any], device: torch.device | str) -> Tensor:
        """int64 [bs] on `device`; an upload that nothing waits for, and none while the batch stays the same."""
        seeds = tuple(self._seed(request) for request in requests)
        if self.uploaded is None or self.uploaded[0] != seeds:
            host = torch.tensor(seeds, dtype=torch.int64)
            if torch.device(device).type == "cuda":
                host = host.pin_memory()
            self.uploaded = seeds, host.to(device, non_blocking=True)
        return self.uploaded[1]

    def _seed(self, request: Any) -> int:
        seed = getattr(request, ATTRIBUTE, None)
        if seed is None:
            asked = request.sampling_params.sampling_seed
            seed = self._drawn() if asked is None else _wrapped(asked)
            setattr(request, ATTRIBUTE, seed)
        return int(seed)

    def _drawn(self) -> int:
        return int(torch.randint(-(2**63), 2**63 - 1, (1,), generator=self.generator))


def _wrapped(seed: int) -> int:
    """As int64: a seed of 2^63 or more is as good as any other."""
    return (seed + 2**63) % 2**64 - 2**63


class BrokenWalks:
    """Statuses on their way to the host, with the requests that they are about."""

    def __init__(self) -> None:
        self.underway: deque[tuple[Callable[[], bool], Tensor, list[Any]]] = deque()

    def note(self, status: Tensor, requests: Sequence[Any]) -> None:
        """`status` int32 [bs] on the device: 0, or 1 + the node whose logits are no distribution."""
        if status.device.type != "cuda":
            self.underway.append((lambda: True, status.clone(), list(requests)))
            return
        host = torch.empty(status.shape, dtype=status.dtype, pin_memory=True)
        host.copy_(status, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
        self.underway.append((arrived.query, host, list(requests)))

    def abort_known(self) -> None:
        """Abort the requests whose bad news has arrived."""
        while self.underway and self.underway[0][0]():
            _, status, requests = self.underway.popleft()
            for node, request in zip(status.tolist(), requests, strict=True):
                if node and not request.finished():
                    _abort(request, node - 1)


def _abort(request: Any, node: int) -> None:
    from sglang.srt.managers.schedule_batch import FINISH_ABORT

    request.to_finish = FINISH_ABORT(
        f"the target's logits at node {node} of this request's tree are not finite, so there is no distribution to "
        "sample from.",
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "InternalServerError",
    )


ALL = 1 << 30  # SGLang's top_k for "off"; a request at temperature 0 is temperature 1 with top_k 1


def choose_backend(name: str, device: torch.device | str) -> str:
    """`name`, or for "auto" the best that proved itself; the reference only by name, since it walks on the host.

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
class Judge:
    """How walks are decided. `status` of its answers is int32 [bs] on the device, or None where there is none."""

    backend: str
    _read: tuple[Tensor, ...] = field(default=(), init=False)
    _converted: fused.SamplingTensors | None = field(default=None, init=False)

    def decide(
        self,
        tree: DraftTree,
        tables: RetrieveTables,
        logits: Tensor,
        sampling: Any,
        parameters: Sequence[Any],
        coins: tuple[Tensor, Tensor],
    ) -> tuple[VerifyResult, Tensor | None]:
        """Walk each tree by `logits` [bs, q, V].

        `sampling` is SGLang's SamplingBatchInfo (on the device), `parameters` the requests' own on the host.
        A walk that meets a row which is no distribution ends there: its status is 1 + the node, its final token
        stays -1, and whoever calls this looks that up nowhere and aborts the request.
        """
        if self.backend == "fused":
            *result, status = fused.sample(tree, tables, logits, self._on_device(sampling), *coins)
            return VerifyResult(*result), status
        if sampling.is_all_greedy:
            return verify_tree_greedy(tree, tables, logits.argmax(dim=-1)), None
        return sample_tree(tree, tables, logits, on_host(parameters), *coins, backend=self.backend), None

    def _on_device(self, sampling: Any) -> fused.SamplingTensors:
        """Converted once a batch: SGLang makes new tensors when requests come or go, and writes into none."""
        given = (sampling.temperatures, sampling.top_ks, sampling.top_ps, sampling.min_ps)
        if self._converted is None or any(a is not b for a, b in zip(given, self._read, strict=True)):
            self._read, self._converted = given, on_device(sampling)
        return self._converted


def on_device(sampling: Any) -> fused.SamplingTensors:
    """SGLang's batch of parameters as the kernel reads them."""
    return fused.SamplingTensors(
        temperature=torch.where(sampling.top_ks == 1, 0.0, sampling.temperatures.view(-1)),
        top_k=torch.where(sampling.top_ks >= ALL, 0, sampling.top_ks),
        top_p=sampling.top_ps,
        min_p=sampling.min_ps,
    )


def on_host(parameters: Sequence[Any]) -> list[SamplingParams]:
    """SGLang's parameters of each request as the library names them."""
    return [
        SamplingParams(
            temperature=0.0 if p.top_k == 1 else p.temperature,
            top_k=0 if p.top_k >= ALL else p.top_k,
            top_p=p.top_p,
            min_p=p.min_p,
        )
        for p in parameters
    ]
