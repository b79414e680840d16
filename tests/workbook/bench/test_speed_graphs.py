"""A captured benchmark keeps what its graphs read alive: they hold addresses, and freed memory is reused."""

import gc
import weakref

import pytest
from ddtree.workbook.bench import timing


class Parameters:
    """Stands for tensors that only the captured call refers to."""


def a_call(parameters: Parameters) -> object:
    return lambda number: parameters


def test_a_benchmark_keeps_what_its_call_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_capture", lambda call, number: number)
    parameters = Parameters()
    kept = weakref.ref(parameters)
    benchmark = timing.captured("a graph", a_call(parameters), 3)  # type: ignore[arg-type]
    del parameters
    gc.collect()
    assert kept() is not None
    del benchmark
    gc.collect()
    assert kept() is None
