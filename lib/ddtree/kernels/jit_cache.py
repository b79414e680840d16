"""Kernels called again without Triton's search for them, which takes longer than all else a call needs of the host."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import cache
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

Key = tuple[Hashable, ...]

_COMPILED: dict[tuple[torch.device, Key], Any] = {}  # None in the interpreter, which compiles nothing
_DTYPE = attrgetter("dtype")


def start(
    kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], device: torch.device, key: Key, *, warps: int
) -> None:
    """`kernel[grid](*arguments)` on `device`, where the tensors are; constants included, in the order of parameters.

    `key`, with the device, is all that a compilation depends on: the kernel's name, every dtype that a caller can
    bring, every integer that Triton looks at, every constant, the warps where they vary, and of each pointer whose
    alignment Triton looks at, what it is. One that lacks a part would have a kernel read memory that is not there.
    """
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        with torch.cuda.device(device):  # Triton compiles for the current device, and launches on its stream
            _start(kernel, grid, arguments, device, key, warps)
    else:
        _start(kernel, grid, arguments, device, key, warps)


def _start(
    kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], device: torch.device, key: Key, warps: int
) -> None:
    compiled = _COMPILED.get((device, key))
    if compiled is None:
        _COMPILED[device, key] = kernel[grid](*arguments, num_warps=warps)
        return
    x, y, z = (*grid, 1, 1)[:3]
    # As `compiled[x, y, z](*arguments)`, without what it gathers for profilers' hooks: 4.5 us of Python, here 0.5.
    stream = _stream_of()(device.index)
    compiled.run(x, y, z, stream, compiled.function, compiled.packed_metadata, None, None, None, *arguments)


@cache
def _stream_of() -> Callable[[int], int]:
    """The current stream of the device of a number, as Triton asks for it."""
    from triton.runtime import driver  # lazily: triton may be absent

    return driver.active.get_current_stream


def dtypes(tensors: Iterable[Tensor]) -> tuple[torch.dtype, ...]:
    """What of `tensors` a key holds where no caller decides how they lie in memory."""
    return tuple(map(_DTYPE, tensors))
