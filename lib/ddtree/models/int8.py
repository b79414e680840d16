"""Weights as int8, one scale per output channel: how the package carries a drafter, restored once to floats."""

from __future__ import annotations

import torch
from torch import Tensor

SCALE = ".scale"


def quantise(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Matrices [out, in] become int8 with a float32 scale [out]; vectors (norms) stay as they are."""
    packed: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if weight.ndim != 2:
            packed[name] = weight
            continue
        rows = weight.float()
        scale = rows.abs().amax(dim=1).clamp(min=torch.finfo(torch.float32).tiny) / 127
        packed[name] = (rows / scale[:, None]).round().to(torch.int8)
        packed[name + SCALE] = scale
    return packed


def dequantise(packed: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """The inverse, within half a step of 1/127 of each row's largest weight."""
    weights: dict[str, Tensor] = {}
    for name, values in packed.items():
        if name.endswith(SCALE):
            continue
        if values.dtype == torch.int8:
            if name + SCALE not in packed:
                raise ValueError(f"weight {name} is int8 but {name + SCALE} is missing; the file is incomplete.")
            values = values.float() * packed[name + SCALE][:, None]
        weights[name] = values.to(dtype)
    return weights
