"""Each request's seed: its own sampling_seed, or one drawn for it once; uploaded when the batch changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

ATTRIBUTE = "ddtree_seed"


class Seeds:
    """`engine_seed` is the server's --random-seed: the same server asked the same in the same order draws the same."""

    def __init__(self, engine_seed: int) -> None:
        self.generator = torch.Generator().manual_seed(engine_seed)
        self.uploaded: tuple[tuple[int, ...], Tensor] | None = None

    def of(self, requests: Sequence[Any], device: torch.device | str) -> Tensor:
        """int64 [bs] on `device`; an upload that nothing waits for, and none while the batch stays the same."""
        seeds = tuple(self._seed(request) for request in requests)
        if self.uploaded is None or self.uploaded[0] != seeds:
            host = torch.tensor(seeds, dtype=torch.int64)
            if torch.device(device).type == "cuda":
                host = host.pin_memory()
            self.uploaded = seeds, host.to(device, non_blocking=True)
        return self.uploaded[1]

    def _seed(self, request: Any) -> int:
        seed = getattr(request, ATTRIBUTE, None)
        if seed is None:
            asked = request.sampling_params.sampling_seed
            seed = self._drawn() if asked is None else _wrapped(asked)
            setattr(request, ATTRIBUTE, seed)
        return int(seed)

    def _drawn(self) -> int:
        return int(torch.randint(-(2**63), 2**63 - 1, (1,), generator=self.generator))


def _wrapped(seed: int) -> int:
    """As int64: a seed of 2^63 or more is as good as any other."""
    return (seed + 2**63) % 2**64 - 2**63
