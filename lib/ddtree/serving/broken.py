"""Walks that met logits which are no distribution: nothing waits for the news, so the request ends a round later."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

import torch
from torch import Tensor


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
