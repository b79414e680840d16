"""Handle the signals that ask a run to stop: kernels interrupt the measurement, `ddtree run` forwards them."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM)
DEBOUNCE_S = 0.5


@contextlib.contextmanager
def handling(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """SIGINT and SIGTERM go to `handler` inside. Nothing changes outside the main thread: only it gets signals."""
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

    A scheduler that ends a job signals every process, and `ddtree run` forwards its own signal to the kernel: signals
    within `DEBOUNCE_S` seconds belong to the same stop. Without the wait they would hit the kernel between two cells.
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
                time.sleep(DEBOUNCE_S)
