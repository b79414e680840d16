"""A kernel is searched for once a key; afterwards what was compiled is called with the same arguments."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from ddtree.kernels import jit_cache
from ddtree.kernels.jit_cache import launch

CPU = torch.device("cpu")


class Binary:
    """What was compiled: keeps what it is run with."""

    function, packed_metadata = "function", "metadata"

    def __init__(self) -> None:
        self.runs: list[tuple[Any, ...]] = []

    def run(self, *arguments: object) -> None:
        self.runs.append(arguments)


class Kernel:
    """Keeps what it is launched with, and returns what it compiled."""

    def __init__(self, returns: Binary | None) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.returns = returns

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launched(*arguments: object, **options: object) -> object:
            self.calls.append((grid, arguments, options))
            return self.returns

        return launched


@pytest.fixture(autouse=True)
def _nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit_cache, "_COMPILED", {})
    monkeypatch.setattr(jit_cache, "_stream_of", lambda: lambda device: f"stream of {device}")


def test_one_search_a_key() -> None:
    binary = Binary()
    kernel = Kernel(returns=binary)
    for argument in ("a", "b"):
        launch(kernel, (3,), (argument, 16), CPU, ("k", 16), warps=4)
    launch(kernel, (3, 2), ("c", 32), CPU, ("k", 32), warps=8)
    assert kernel.calls == [((3,), ("a", 16), {"num_warps": 4}), ((3, 2), ("c", 32), {"num_warps": 8})]
    launched = (3, 1, 1, "stream of None", "function", "metadata", None, None, None, "b", 16)
    assert binary.runs == [launched], "compiled kernels take three sizes of a grid"


def test_the_interpreter_compiles_nothing() -> None:
    kernel = Kernel(returns=None)
    for _ in range(2):
        launch(kernel, (1,), (), CPU, ("k",), warps=4)
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
    binaries = [Binary(), Binary()]
    seen = []

    class Compiling:
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            return lambda *_, **__: seen.append(current[-1]) or binaries[current[-1]]

    for device in (0, 1, 0, 1):
        launch(Compiling(), (1,), (device,), torch.device("cuda", device), ("k",), warps=4)
    assert seen == [0, 1], "compiled once for each"
    assert [[(run[3], run[-1]) for run in binary.runs] for binary in binaries] == [
        [("stream of 0", 0)],
        [("stream of 1", 1)],
    ]
    assert current == [0]


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_what_was_compiled_is_run_as_triton_runs_it() -> None:
    """The same arguments at the same places as Triton's own launch of it, but for the hooks of profilers."""
    from triton.compiler.compiler import CompiledKernel

    runs: list[tuple[Any, ...]] = []
    binary = object.__new__(CompiledKernel)
    for name, value in {"module": 1, "function": 2, "packed_metadata": (4, 1, 0), "name": "k", "src": None}.items():
        setattr(binary, name, value)
    binary._run = lambda *arguments: runs.append(arguments)
    binary[3, 2, 1]("a", 16, stream="stream of None")
    kernel = Kernel(returns=binary)
    for _ in range(2):
        launch(kernel, (3, 2), ("a", 16), CPU, ("k",), warps=4)
    by_triton, ours = runs
    hooks = slice(6, 9)
    assert ours[hooks] == (None, None, None)
    assert [*ours[:6], *ours[9:]] == [*by_triton[:6], *by_triton[9:]]


def test_an_unread_release_of_triton_gets_the_public_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    triton = pytest.importorskip("triton")
    monkeypatch.setattr(triton, "__version__", "9.1.0")
    jit_cache._interface_is_known.cache_clear()
    try:
        binary = Binary()
        kernel = Kernel(returns=binary)
        for argument in ("a", "b"):
            launch(kernel, (3,), (argument, 16), CPU, ("k", 16), warps=4)
        assert [call[1] for call in kernel.calls] == [("a", 16), ("b", 16)]
        assert binary.runs == []
    finally:
        jit_cache._interface_is_known.cache_clear()
