"""Sampling parameters where the kernel reads them: uploaded once, used in every round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ddtree.sampling import SamplingParams

MOST = 2**31 - 1  # top_k is int32 on the device; no vocabulary is larger


@dataclass(frozen=True, slots=True)
class SamplingTensors:
    """One value a request, [bs] each, on the device of the logits."""

    temperature: Tensor  # float32, 0 for greedy
    top_k: Tensor  # int32, 0 is off
    top_p: Tensor  # float32, 1 is off
    min_p: Tensor  # float32, 0 is off

    def __post_init__(self) -> None:
        """Raises ValueError for a tensor of another dtype or shape."""
        for name, tensor, dtype in (
            ("temperature", self.temperature, torch.float32),
            ("top_k", self.top_k, torch.int32),
            ("top_p", self.top_p, torch.float32),
            ("min_p", self.min_p, torch.float32),
        ):
            if tensor.dtype != dtype or tensor.shape != self.temperature.shape[:1]:
                raise ValueError(
                    f"SamplingTensors.{name} is {tensor.dtype} {list(tensor.shape)}; it must be {dtype} "
                    f"{list(self.temperature.shape[:1])}."
                )

    @classmethod
    def from_requests(cls, requests: Sequence[SamplingParams], device: torch.device | str) -> SamplingTensors:
        """The values of `requests` on `device`; it waits for the upload, so make it once for many rounds."""
        return cls(
            temperature=torch.tensor([0.0 if p.greedy else p.temperature for p in requests], dtype=torch.float32).to(
                device
            ),
            top_k=torch.tensor([min(p.top_k, MOST) for p in requests], dtype=torch.int32).to(device),
            top_p=torch.tensor([p.top_p for p in requests], dtype=torch.float32).to(device),
            min_p=torch.tensor([p.min_p for p in requests], dtype=torch.float32).to(device),
        )
