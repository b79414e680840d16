"""Kernels called again without Triton's search for them, which takes longer than all else a call needs of the host."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

Key = tuple[Hashable, ...]

_COMPILED: dict[Key, Any] = {}  # None in the interpreter, which compiles nothing


def start(kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], key: Key, *, warps: int) -> None:
    """`kernel[grid](*arguments)`, constants included, in the order of its parameters.

    `key` is all that a compilation depends on: the kernel's name, the device, every dtype that may differ, every
    integer that Triton looks at, every constant, and of each pointer whose alignment Triton looks at, what it is.
    """
    compiled = _COMPILED.get(key)
    if compiled is None:
        _COMPILED[key] = kernel[grid](*arguments, num_warps=warps)
    else:
        compiled[(*grid, 1, 1)[:3]](*arguments)
