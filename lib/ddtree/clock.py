"""How long the stages of a round take, on the host's clock or by the device's own events."""

from __future__ import annotations

import time

import torch


class StageClock:
    """Milliseconds of stages, each entered into its round's record under its name.

    On CUDA the device's own events are read, and `stop` waits for them: a lap costs a round nothing.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_cuda = device.type == "cuda"
        self._laps: list[tuple[dict[str, float], str, torch.cuda.Event, torch.cuda.Event]] = []
        self.restart()

    def restart(self) -> None:
        """What comes until the next lap begins here."""
        self._last = self._now()

    def lap(self, times: dict[str, float], stage: str) -> None:
        """Enter the milliseconds since the last lap or restart into `times[stage]`; on CUDA, once stopped."""
        last, self._last = self._last, self._now()
        if isinstance(last, float) and isinstance(self._last, float):
            times[stage] = 1e3 * (self._last - last)
        else:
            times[stage] = 0.0
            self._laps.append((times, stage, last, self._last))  # type: ignore[arg-type]

    def stop(self) -> None:
        """Wait for the device and enter what its events say."""
        if self._laps:
            torch.cuda.synchronize()
        for times, stage, start, end in self._laps:
            times[stage] = start.elapsed_time(end)

    def _now(self) -> float | torch.cuda.Event:
        if not self._on_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event
