"""Signals that ask a run to stop: in a kernel they interrupt the measurement, in `ddtree run` they reach the kernel."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM)
ECHO_S = 0.5  # seconds


@contextlib.contextmanager
def handling(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """SIGINT and SIGTERM go to `handler` inside; outside the main thread, which alone gets signals, nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in STOPPING}
    for number in STOPPING:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, handled in before.items():
            signal.signal(number, handled)


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM too raises KeyboardInterrupt inside, and only the first signal does.

    A scheduler that ends a job signals every process, and `ddtree run` passes its own signal on to the kernel: what
    follows within `ECHO_S` belongs to the same stop. Left to itself it would hit the kernel between two cells.
    """
    stopped = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    with handling(stop):
        try:
            yield
        finally:
            if stopped:
                time.sleep(ECHO_S)
