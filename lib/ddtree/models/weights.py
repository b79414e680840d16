"""Check safetensors weights, restore int8 weights, and pack linear layers for oneDNN on a CPU.

A pickle or a truncated file is an error that names the file, before a model is built."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
SCALE = ".scale"  # suffix of the name of an int8 matrix's scales
TYPICAL_ROWS = 16  # the width the packed layout is chosen for; other widths run too


def require_weights(folder: Path) -> None:
    """ValueError unless `folder` has safetensors files, none of which ends before its header says.

    Only headers are read. The message names the file, and how to get a right one.
    """
    if not list(folder.glob("*.safetensors")):
        pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
        if pickles:
            raise ValueError(
                f"{folder} has its weights as {', '.join(pickles)}, a pickle that could run code when it is read; "
                "only safetensors are loaded. Convert it where you trust it, or name a model that has safetensors."
            )
        raise ValueError(f"{folder} has no *.safetensors file, so it has no weights that can be loaded.")
    if problem := damaged_weights(folder):
        raise ValueError(f"the weights {problem}; remove the file and fetch it again.")


def damaged_weights(folder: Path) -> str | None:
    """Which safetensors file of `folder` ends before its header says, in words; None if all are whole."""
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt"):
                pass
        except SafetensorError as error:
            return f"{path} are truncated or damaged ({error})"
    return None


def dequantise(packed: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Restore the weights of `quantise`, within half a step of 1/127 of each row's largest weight.

    Raises ValueError, naming the weight, for an int8 matrix without its scales.
    """
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


def quantise(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The format of the bundled drafter, for its export and for tests of `dequantise`.

    Matrices [out, in] become int8 with a float32 scale [out]; vectors (norms) stay as they are.
    """
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


class PackedLinear(nn.Module):
    """A frozen `nn.Linear` whose weight is in oneDNN's blocked layout (what torch.compile's freezing uses)."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.out_features, self.in_features = linear.weight.shape
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), TYPICAL_ROWS)
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, rows: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(rows, self._packed, self._bias, "none", [], "")


@cache
def can_pack(dtype: torch.dtype = torch.float32) -> bool:
    """Whether this torch build and this CPU run a packed layer of `dtype`, tried on a small one.

    The ops are private to torch, so another release may lack them or call them otherwise; packing is off then.
    """
    if not torch.backends.mkldnn.is_available():
        return False
    size = 16
    linear = nn.utils.skip_init(nn.Linear, size, size, bias=False, dtype=dtype)  # without a draw from the global RNG
    rows = torch.arange(size * size, dtype=dtype).view(size, size)
    with torch.inference_mode():
        torch.eye(size, out=linear.weight)
        try:
            return torch.equal(PackedLinear(linear)(rows), rows)
        except (AttributeError, RuntimeError, TypeError):
            return False


def pack_linears(model: nn.Module) -> int:
    """Replace every `nn.Linear` in place, freeing its plain weight; returns how many were packed.

    For inference on a CPU only: the packed weights are neither parameters nor saved with the model.
    """
    packed = 0
    for name, child in model.named_children():
        if isinstance(child, nn.Linear):
            setattr(model, name, PackedLinear(child))
            packed += 1
        else:
            packed += pack_linears(child)
    return packed
