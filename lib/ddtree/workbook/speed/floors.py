"""The least a stage can take: the bytes that it must move once, over the bandwidth a copy reaches on this machine."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ddtree.workbook.speed.inputs import Scene
from ddtree.workbook.speed.medians import median
from ddtree.workbook.speed.timing import Case, clock_of, interleaved

COPIED_BYTES = {"cuda": 2**31, "cpu": 2**27}  # far beyond any cache
LONG = 8  # bytes of an index


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes read and written per second by a large copy."""

    bytes_per_s: float

    def floor_us(self, moved: float) -> float:
        """Microseconds that `moved` bytes take at least."""
        return 1e6 * moved / self.bytes_per_s


def measure_bandwidth(device: torch.device, *, repeats: int = 15) -> Bandwidth:
    """Copy one large buffer into another, again and again."""
    source = torch.randint(256, (COPIED_BYTES[device.type],), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    laps = interleaved([Case("copy", lambda _: target.copy_(source))], repeats=repeats, clock=clock_of(device))
    return Bandwidth(2 * source.numel() / (1e-6 * median(laps["copy"]).value))


def bytes_to_move(stage: str, scene: Scene, *, key_len: int, visited_rows: float) -> float:
    """What `stage` must read and write at least once. Raises KeyError for a stage that is not known."""
    bs, q = scene.tree.tokens.shape
    nodes = bs * q
    draft = scene.draft_logits.numel() * scene.draft_logits.element_size()
    tree = nodes * (3 * LONG + 4)
    return {
        "top-k": draft,
        "build": draft + tree,
        "compile": nodes * (LONG + 4) + 3 * nodes * LONG,
        "mask": nodes * LONG + nodes * key_len * scene.logits.element_size(),
        "sample": visited_rows * scene.logits.shape[-1] * scene.logits.element_size(),
        "plan": nodes * 4 + 3 * bs * (scene.tree.max_depth + 1) * LONG,
    }[stage]
