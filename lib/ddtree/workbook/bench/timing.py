"""Time cases interleaved on one clock, so that a machine that slows down slows all; CUDA graphs of one call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch


def captured(name: str, call: Callable[[int], object], sets: int) -> Case:
    """The case that replays `call(0)`, ..., `call(sets - 1)` in turn, and keeps `call`: a graph holds addresses alone,
    so what `call` reads must live as long.

    Raises RuntimeError where the call waits for the device, which no graph can hold.
    """
    graphs = [_capture(call, number) for number in range(sets)]
    return Case(name, lambda turn: graphs[turn % sets].replay(), reads=call)


def _capture(call: Callable[[int], object], number: int) -> torch.cuda.CUDAGraph:
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside), torch.inference_mode():
        for _ in range(2):  # tables that are made once, and libraries that set themselves up
            call(number)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        call(number)
    return graph


Run = TypeVar("Run")
WARM_UP = 3  # turns before the first that counts


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to time; `run` gets the number of the turn, so that it can take other inputs each time."""

    name: str
    run: Callable[[int], object]
    reads: object = None  # kept as long as the case


class Clock(Protocol):
    settles: bool  # whether each timed call follows an untimed one of the same case

    def lap(self, call: Callable[[], object]) -> Callable[[], float]:
        """Run `call` and return what will say how many microseconds it took."""
        ...


class WallClock:
    """For a CPU: the host's own clock."""

    settles = False  # a call is long beside what another case leaves in caches

    def lap(self, call: Callable[[], object]) -> Callable[[], float]:
        began = time.perf_counter()
        call()
        took = 1e6 * (time.perf_counter() - began)
        return lambda: took


class CudaClock:
    """For a GPU: events around the call, on an idle device, so that the launches count as much as the kernels."""

    settles = True

    def lap(self, call: Callable[[], object]) -> Callable[[], float]:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        call()
        end.record()

        def microseconds() -> float:
            end.synchronize()
            return 1e3 * start.elapsed_time(end)

        return microseconds


def clock_of(device: torch.device) -> Clock:
    return CudaClock() if device.type == "cuda" else WallClock()


def runnable(candidates: Iterable[tuple[str, str | None, Run]]) -> tuple[dict[str, Run], list[dict[str, str]]]:
    """Those by name for whose absence there is no reason, in their order, and what cannot run with its reason."""
    usable: dict[str, Run] = {}
    skipped: list[dict[str, str]] = []
    for name, reason, run in candidates:
        if reason is None:
            usable[name] = run
        else:
            skipped.append({"what": name, "why": reason})
    return usable, skipped


@torch.inference_mode()
def fitting(cases: Sequence[Case], where: str, skipped: list[dict[str, str]]) -> list[Case]:
    """The cases that run once without exhausting the memory; the others are added to `skipped`."""
    fit = []
    for case in cases:
        try:
            case.run(0)
        except torch.OutOfMemoryError as error:
            skipped.append({"what": f"{case.name}, {where}", "why": f"out of memory: {str(error).split('.')[0]}"})
            torch.cuda.empty_cache()
        else:
            fit.append(case)
    return fit


@torch.inference_mode()
def interleaved(cases: Sequence[Case], *, repeats: int, clock: Clock, warm_up: int = WARM_UP) -> dict[str, list[float]]:
    """Microseconds of every case in every turn, after `warm_up` turns that are not timed.

    A turn begins with another case each time. Where the clock settles, the case first runs untimed on the next turn's
    inputs: a microsecond's work after a case that kept the host busy for a tenth of a second would else be charged for
    cold caches, a GPU that clocked down and an allocator in disorder, as no loop that runs it again and again is.
    Raises ValueError for two cases of one name.
    """
    names = [case.name for case in cases]
    if len(set(names)) < len(names):
        raise ValueError(f"cases are named {names}; every name may stand once only.")
    for turn in range(warm_up):
        for case in cases:
            case.run(turn)
    laps: dict[str, list[Callable[[], float]]] = {name: [] for name in names}
    for turn in range(repeats):
        first = turn % len(cases) if cases else 0
        for case in [*cases[first:], *cases[:first]]:
            if clock.settles:
                case.run(turn + 1)
            laps[case.name].append(clock.lap(lambda case=case, turn=turn: case.run(turn)))  # type: ignore[misc]
    return {name: [lap() for lap in found] for name, found in laps.items()}
