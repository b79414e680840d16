"""The backends, best first, and a trial run that each must pass against the reference before it is believed.

Invariant: a backend is tried once a process and kind of device; one asked for by name that cannot run is an error, and
none is taken in its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ddtree.backends import BACKENDS, fused, reference, sgl
from ddtree.retrieve import compile_retrieve
from ddtree.sampling import SamplingParams
from ddtree.tree import DraftTree

VERIFY = {"fused": fused.verify, "sgl": sgl.verify, "reference": reference.verify}
Result = tuple[Tensor, Tensor, Tensor]  # predict, accept_index, accept_count


@dataclass(frozen=True, slots=True)
class BackendStatus:
    """Whether a backend can be used on a device, and the reason in one sentence."""

    name: str
    usable: bool
    reason: str


class BackendUnavailableError(RuntimeError):
    """A backend was asked for by name and cannot run here."""


def backend_report(device: torch.device | str = "cpu") -> list[BackendStatus]:
    """Every backend, best first, whether it proved itself on `device`, and why; tried once a process."""
    return [prove(name, torch.device(device).type) for name in BACKENDS]


def resolve(backend: str, device: torch.device) -> str:
    """The backend meant by a name or by "auto". Raises ValueError or BackendUnavailableError, with the reason."""
    if backend == "auto":
        # Triton's interpreter proves the kernel right on a CPU, but no one decodes with it unless by name.
        fit = (s.name for s in backend_report(device) if s.usable and (s.name != "fused" or device.type == "cuda"))
        return next(fit)
    if backend not in BACKENDS:
        raise ValueError(f'backend is "{backend}"; it must be "auto", {", ".join(map(repr, BACKENDS))}.')
    status = prove(backend, device.type)
    if not status.usable:
        raise BackendUnavailableError(f'backend "{backend}" was asked for and cannot run: {status.reason}')
    return backend


@lru_cache
def prove(name: str, device_type: str) -> BackendStatus:
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
    tree, probs, *coins = tiny_case()
    moved = tree.to(device_type)
    tables, moved_tables = compile_retrieve(tree), compile_retrieve(moved)
    on_device = [coin.to(device_type) for coin in coins]
    yield (
        reference.verify(tree, tables, probs, *coins),
        VERIFY[name](moved, moved_tables, probs.to(device_type), *on_device),
    )
    if name == "fused":
        logits = probs.log()
        requests = [SamplingParams(), SamplingParams(top_p=0.95), SamplingParams(top_k=8)]
        sampling = fused.SamplingTensors.from_requests(requests, device_type)
        yield (
            reference.sample(tree, tables, logits, requests, *coins),
            fused.sample(moved, moved_tables, logits.to(device_type), sampling, *on_device)[:3],
        )


def tiny_case() -> tuple[DraftTree, Tensor, Tensor, Tensor]:
    """Root, two children, one grandchild: one row accepts both depths, one rejects a child, one draws the rest."""
    tree = DraftTree.from_parents(
        tokens=[[9, 3, 5, 2]] * 3, parents=[[-1, 0, 0, 1]] * 3, node_logws=[[0.0, -0.5, -1.0, -0.9]] * 3
    )
    probs = torch.full((3, 4, 10), 0.1)
    probs[:, 0] = torch.tensor([0, 0, 0, 0.5, 0, 0.3, 0.2, 0, 0, 0])
    probs[:, 1] = torch.tensor([0, 0, 0.6, 0, 0, 0, 0, 0.4, 0, 0])
    coins = torch.tensor([[0.4, 0.5, 0.9, 0.9], [0.7, 0.5, 0.3, 0.9], [0.9, 0.5, 0.3, 0.9]])
    return tree, probs, coins, torch.tensor([0.52, 0.52, 0.52])
