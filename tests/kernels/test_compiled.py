"""A kernel is searched for once a key; afterwards what was compiled is called with the same arguments."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from ddtree.kernels import compiled
from ddtree.kernels.compiled import start

CPU = torch.device("cpu")


class Recorder:
    """Keeps what it is launched with; as a kernel it returns what it compiled."""

    def __init__(self, returns: object = None) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.returns = returns

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launched(*arguments: object, **options: object) -> object:
            self.calls.append((grid, arguments, options))
            return self.returns

        return launched


@pytest.fixture(autouse=True)
def _nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_COMPILED", {})


def test_one_search_a_key() -> None:
    binary = Recorder()
    kernel = Recorder(returns=binary)
    for argument in ("a", "b"):
        start(kernel, (3,), (argument, 16), CPU, ("k", 16), warps=4)
    start(kernel, (3, 2), ("c", 32), CPU, ("k", 32), warps=8)
    assert kernel.calls == [((3,), ("a", 16), {"num_warps": 4}), ((3, 2), ("c", 32), {"num_warps": 8})]
    assert binary.calls == [((3, 1, 1), ("b", 16), {})], "compiled kernels take three sizes of a grid"


def test_the_interpreter_compiles_nothing() -> None:
    kernel = Recorder(returns=None)
    for _ in range(2):
        start(kernel, (1,), (), CPU, ("k",), warps=4)
    assert len(kernel.calls) == 2


def test_it_runs_where_the_tensors_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton itself takes the current device, whose stream is another and whose kernels are others."""
    current = [0]

    @contextmanager
    def made_current(device: torch.device) -> Iterator[None]:
        current.append(device.index)
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[-1])
    monkeypatch.setattr(torch.cuda, "device", made_current)
    binaries = [Recorder(), Recorder()]
    seen = []

    class Kernel:
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            return lambda *_, **__: seen.append(current[-1]) or binaries[current[-1]]

    for device in (0, 1, 0, 1):
        start(Kernel(), (1,), (device,), torch.device("cuda", device), ("k",), warps=4)
    assert seen == [0, 1], "compiled once for each"
    assert [[arguments for _, arguments, _ in binary.calls] for binary in binaries] == [[(0,)], [(1,)]]
    assert current == [0]
