"""The verify backends, best first, and the self-test that each must pass against the reference before it is used.

A backend is tested once for each process and kind of device. One that is asked for by name and cannot run is an error;
no other is used in its place.
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
SAMPLE = {"fused": fused.sample_requests, "sgl": sgl.sample, "reference": reference.sample}
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
    """Every backend, best first, whether it passed its self-test on `device`, and why; tested once a process."""
    return [self_test(name, torch.device(device).type) for name in BACKENDS]


def resolve(backend: str, device: torch.device) -> str:
    """The backend meant by a name or by "auto". Raises ValueError or BackendUnavailableError, with the reason."""
    if backend == "auto":
        # On a CPU "fused" runs in Triton's interpreter: right, but far too slow to be chosen unless by name.
        usable = (s.name for s in backend_report(device) if s.usable and (s.name != "fused" or device.type == "cuda"))
        return next(usable)
    if backend not in BACKENDS:
        raise ValueError(f'backend is "{backend}"; it must be "auto", {", ".join(map(repr, BACKENDS))}.')
    status = self_test(backend, device.type)
    if not status.usable:
        raise BackendUnavailableError(f'backend "{backend}" was asked for and cannot run: {status.reason}')
    return backend


@lru_cache
def self_test(name: str, device_type: str) -> BackendStatus:
    """Raises torch.OutOfMemoryError, which says nothing of the backend and is not remembered."""
    if name == "reference":
        return BackendStatus(name, True, "the reference runs in torch on any device")
    reason = (fused if name == "fused" else sgl).missing(device_type)
    if reason is not None:
        return BackendStatus(name, False, reason)
    try:
        for expected, got in _self_test_runs(name, device_type):
            if not all(torch.equal(a, b.cpu()) for a, b in zip(expected, got, strict=True)):
                return BackendStatus(name, False, f"its self-test gave {got} where the reference gives {expected}")
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        return BackendStatus(
            name, False, f"its self-test failed under torch {torch.__version__}: {type(error).__name__}: {error}"
        )
    return BackendStatus(name, True, "its self-test gave the reference's tokens")


def _self_test_runs(name: str, device_type: str) -> Iterator[tuple[Result, Result]]:
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
    """Root, two children, one grandchild: one row accepts both depths, one rejects a child, one samples the rest."""
    tree = DraftTree.from_parents(
        tokens=[[9, 3, 5, 2]] * 3, parents=[[-1, 0, 0, 1]] * 3, node_logws=[[0.0, -0.5, -1.0, -0.9]] * 3
    )
    probs = torch.full((3, 4, 10), 0.1)
    probs[:, 0] = torch.tensor([0, 0, 0, 0.5, 0, 0.3, 0.2, 0, 0, 0])
    probs[:, 1] = torch.tensor([0, 0, 0.6, 0, 0, 0, 0, 0.4, 0, 0])
    coins = torch.tensor([[0.4, 0.5, 0.9, 0.9], [0.7, 0.5, 0.3, 0.9], [0.9, 0.5, 0.3, 0.9]])
    return tree, probs, coins, torch.tensor([0.52, 0.52, 0.52])
