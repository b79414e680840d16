"""The verify of a served batch: one backend, chosen and proved at start, and never a silent argmax.

"fused" goes from logits to tokens on the device without waiting. "sgl" and "reference" wait once or more a round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ddtree.backends import fused
from ddtree.draft_tree import DraftTree
from ddtree.retrieve import RetrieveTables
from ddtree.sampling import SamplingParams
from ddtree.verify import BackendUnavailableError, VerifyResult, backend_report, sample_tree, verify_tree_greedy

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
