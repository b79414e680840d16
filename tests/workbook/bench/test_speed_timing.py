"""Timing by a clock that counts calls: who runs when, with which inputs, and what the intervals are made of."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from ddtree.workbook.bench.timing import Benchmark, Clock, fitting_memory, interleaved
from ddtree.workbook.stats import median, ratio
from wording import names

CPU = torch.device("cpu")


class CountingClock(Clock):
    """Takes the n-th timed call to last n microseconds."""

    def __init__(self, *, warm_cache: bool = False) -> None:
        self.warm_cache, self.calls = warm_cache, 0

    def time(self, call: Callable[[], object]) -> Callable[[], float]:
        call()
        self.calls += 1
        took = float(self.calls)
        return lambda: took


def recorded(names: str, calls: list[tuple[str, int]]) -> list[Benchmark]:
    return [Benchmark(name, lambda turn, name=name: calls.append((name, turn))) for name in names]


def test_every_turn_runs_each_benchmark_once_and_begins_with_another() -> None:
    calls: list[tuple[str, int]] = []
    timings = interleaved(recorded("abc", calls), repeats=4, clock=CountingClock(), warm_up=2)
    warm_up, timed = calls[:6], calls[6:]
    assert warm_up == [(name, turn) for turn in range(2) for name in "abc"]
    orders = ["abc", "bca", "cab", "abc"]
    assert timed == [(name, turn) for turn, order in enumerate(orders) for name in order]
    assert timings == {"a": [1, 6, 8, 10], "b": [2, 4, 9, 11], "c": [3, 5, 7, 12]}


def test_with_a_warm_cache_each_timed_call_follows_one_of_its_own_benchmark_on_other_inputs() -> None:
    calls: list[tuple[str, int]] = []
    timings = interleaved(recorded("ab", calls), repeats=2, clock=CountingClock(warm_cache=True), warm_up=0)
    assert calls == [("a", 1), ("a", 0), ("b", 1), ("b", 0), ("b", 2), ("b", 1), ("a", 2), ("a", 1)]
    assert timings == {"a": [1, 4], "b": [2, 3]}
    assert Clock(torch.device("cuda")).warm_cache
    assert not Clock(CPU).warm_cache


def test_a_benchmark_that_exhausts_the_memory_is_skipped_and_named() -> None:
    def too_large(_: int) -> None:
        raise torch.OutOfMemoryError("Tried to allocate 90 GiB. More words.")

    calls: list[tuple[str, int]] = []
    skipped: list[dict[str, str]] = []
    benchmarks = [*recorded("a", calls), Benchmark("b", too_large), *recorded("c", calls)]
    assert [benchmark.name for benchmark in fitting_memory(benchmarks, "V 9", skipped)] == ["a", "c"]
    assert skipped == [{"what": "b, V 9", "why": "out of memory: Tried to allocate 90 GiB"}]
    assert calls == [("a", 0), ("c", 0)]


def test_two_benchmarks_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match=names("name")):
        interleaved(recorded("aba", []), repeats=2, clock=CountingClock())


def test_a_cpu_has_the_hosts_clock_which_runs_the_call_once() -> None:
    clock = Clock(CPU)
    ran: list[int] = []
    took = clock.time(lambda: ran.append(1))
    assert ran == [1]
    assert took() == took() > 0


def test_median_and_its_interval() -> None:
    assert median([5.0, 1.0, 3.0]).value == 3.0
    assert (median([7.0] * 4).low, median([7.0] * 4).high) == (7.0, 7.0)
    values = np.random.default_rng(0).lognormal(size=101).tolist()
    found = median(values)
    below = sorted(values).index(found.value)
    # The 95 % interval of a median of n values is about 1.96 * sqrt(n) / 2 ranks to either side: 10 of 101.
    assert 6 <= below - sum(v < found.low for v in values) <= 14
    assert 6 <= sum(v <= found.high for v in values) - below <= 15


def test_ratio_draws_the_same_turns_of_both() -> None:
    drifting = [1.0, 2.0, 4.0, 8.0, 16.0]  # a machine that slows down
    doubled = ratio([2 * us for us in drifting], drifting)
    assert (doubled.value, doubled.low, doubled.high) == (2.0, 2.0, 2.0)
    with pytest.raises(ValueError, match=names("3 2")):
        ratio([1.0, 1.0, 1.0], [1.0, 1.0])
