"""Launch Triton kernels without Triton's search for the compiled one, which costs the host more than the launch.

The private interface that this needs was read in the releases of READ_RELEASES; any other release of Triton gets the
public `kernel[grid](...)`, which is slower and always right.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import cache
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

Key = tuple[Hashable, ...]
READ_RELEASES = ("3.6", "3.7")  # of Triton, in which CompiledKernel.run was read

_COMPILED: dict[tuple[torch.device, Key], Any] = {}  # None in the interpreter; code, not tensors, so unbounded
_DTYPE = attrgetter("dtype")


def launch(
    kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], device: torch.device, key: Key, *, warps: int
) -> None:
    """`kernel[grid](*arguments)` on `device`, where the tensors are; constants included, in the order of parameters.

    `key`, with the device, is all that a compilation depends on: the kernel's name, every dtype that a caller can
    bring, every integer that Triton specialises on, every constant, the warps where they vary, and each alignment that
    Triton specialises on. A key without one of these could start the wrong kernel.
    """
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        with torch.cuda.device(device):  # Triton compiles for the current device, and launches on its stream
            _launch(kernel, grid, arguments, device, key, warps)
    else:
        _launch(kernel, grid, arguments, device, key, warps)


def _launch(
    kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], device: torch.device, key: Key, warps: int
) -> None:
    compiled = _COMPILED.get((device, key))
    if compiled is None:
        compiled = kernel[grid](*arguments, num_warps=warps)
        if _interface_is_known():
            _COMPILED[device, key] = compiled
        return
    x, y, z = (*grid, 1, 1)[:3]
    # As `compiled[x, y, z](*arguments)`, without what it gathers for profilers' hooks: 4.5 us of Python, here 0.5.
    stream = _stream_of()(device.index)
    compiled.run(x, y, z, stream, compiled.function, compiled.packed_metadata, None, None, None, *arguments)


@cache
def _interface_is_known() -> bool:
    import triton  # lazily: it may be absent

    return triton.__version__.rpartition(".")[0] in READ_RELEASES


@cache
def _stream_of() -> Callable[[int], int]:
    """The current stream of a device by its number, as Triton asks for it."""
    from triton.runtime import driver  # lazily: triton may be absent

    return driver.active.get_current_stream


def dtypes(tensors: Iterable[Tensor]) -> tuple[torch.dtype, ...]:
    """What of `tensors` a key holds where no caller decides how they lie in memory."""
    return tuple(map(_DTYPE, tensors))
