"""Time benchmarks interleaved, so that a machine that slows down slows all of them; replay calls from CUDA graphs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

WARM_UP = 3  # turns before the first that is timed

Item = TypeVar("Item")
Call = Callable[[], object]
Skipped = list[dict[str, str]]  # rows {what, why} of the record


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One thing to time. `run` gets the number of the turn, so that it can take other inputs each time."""

    name: str
    run: Callable[[int], object]
    reads: object = None  # kept alive as long as the benchmark


class Clock:
    """The host's clock for a CPU; for a GPU events from an idle device on, so that launches count as much as kernels.

    On a GPU each timed call follows an untimed one of the same benchmark (`warm_cache`). On a CPU a call takes long
    compared with refilling caches.
    """

    def __init__(self, device: torch.device) -> None:
        self.warm_cache = device.type == "cuda"

    def time(self, call: Call) -> Callable[[], float]:
        """Run `call` and return a function that gives its microseconds, since a GPU's are known later."""
        if not self.warm_cache:
            began = time.perf_counter()
            call()
            took = 1e6 * (time.perf_counter() - began)
            return lambda: took
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        call()
        end.record()

        def microseconds() -> float:
            end.synchronize()
            return 1e3 * start.elapsed_time(end)

        return microseconds


@torch.inference_mode()
def interleaved(
    benchmarks: Sequence[Benchmark], *, repeats: int, clock: Clock, warm_up: int = WARM_UP
) -> dict[str, list[float]]:
    """Microseconds of every benchmark in every turn, after `warm_up` turns that are not timed.

    Each turn begins with another benchmark. With a `warm_cache` clock, the benchmark first runs untimed on the next
    turn's inputs: after one that kept the host busy for 0.1 s, a call of a few microseconds would otherwise pay for
    cold caches, a GPU that clocked down and a fragmented allocator, which a loop of such calls does not.
    Raises ValueError for two benchmarks of one name.
    """
    names = [benchmark.name for benchmark in benchmarks]
    if len(set(names)) < len(names):
        raise ValueError(f"benchmarks are named {names}; every name must be there only once.")
    for turn in range(warm_up):
        for benchmark in benchmarks:
            benchmark.run(turn)
    timings: dict[str, list[Callable[[], float]]] = {name: [] for name in names}
    for turn in range(repeats):
        for benchmark in rotated(benchmarks, turn):
            if clock.warm_cache:
                benchmark.run(turn + 1)
            timings[benchmark.name].append(clock.time(lambda run=benchmark.run, turn=turn: run(turn)))  # type: ignore[misc]
    return {name: [microseconds() for microseconds in found] for name, found in timings.items()}


def rotated(items: Sequence[Item], turn: int) -> list[Item]:
    """All items, each turn beginning with the next one, so that none is always measured first."""
    first = turn % len(items) if items else 0
    return [*items[first:], *items[:first]]


def captured(name: str, call: Callable[[int], object], sets: int) -> Benchmark:
    """The benchmark that replays `call(0)`, ..., `call(sets - 1)` one after the other from CUDA graphs.

    It keeps `call` alive: a graph holds only addresses of what the call reads. Raises RuntimeError where the call waits
    for the device, which cannot be captured.
    """
    graphs = [_capture(call, number) for number in range(sets)]
    return Benchmark(name, lambda turn: graphs[turn % sets].replay(), reads=call)


def _capture(call: Callable[[int], object], number: int) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.inference_mode():
        for _ in range(2):  # tables that are made once, and libraries that initialise themselves
            call(number)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        call(number)
    return graph


def usable(candidates: Iterable[tuple[str, str | None, Item]], skipped: Skipped) -> dict[str, Item]:
    """Candidates (name, why it cannot run or None, item) that can run, by name; the others are added to `skipped`."""
    candidates = list(candidates)
    skipped += [{"what": name, "why": reason} for name, reason, _ in candidates if reason is not None]
    return {name: item for name, reason, item in candidates if reason is None}


@torch.inference_mode()
def fitting_memory(benchmarks: Sequence[Benchmark], where: str, skipped: Skipped) -> list[Benchmark]:
    """The benchmarks that run once without exhausting the device's memory; the others are added to `skipped`."""
    fitting = []
    for benchmark in benchmarks:
        try:
            benchmark.run(0)
        except torch.OutOfMemoryError as error:
            skipped.append({"what": f"{benchmark.name}, {where}", "why": f"out of memory: {str(error).split('.')[0]}"})
            torch.cuda.empty_cache()
        else:
            fitting.append(benchmark)
    return fitting


class Stopwatch:
    """Seconds since it was made, and log lines that begin with them."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    @property
    def wall_s(self) -> float:
        return time.perf_counter() - self._began

    def say(self, line: str) -> None:
        print(f"{self.wall_s:6.1f} s  {line}", flush=True)
