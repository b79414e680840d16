"""Weights are whole safetensors files: a pickle is refused by name, and a truncated file before a model is built."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open

PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")


def require_weights(folder: Path) -> None:
    """ValueError unless `folder` has safetensors files that each reach as far as their headers say.

    Only headers are read. The message names the file, and how to get a right one.
    """
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
        if pickles:
            raise ValueError(
                f"{folder} holds its weights as {', '.join(pickles)}, a pickle that could run code when it is read; "
                "only safetensors are loaded. Convert it where you trust it, or name a model that has safetensors."
            )
        raise ValueError(f"{folder} has no *.safetensors, so it holds no weights.")
    for path in weights:
        try:
            with safe_open(path, framework="pt"):
                pass
        except SafetensorError as error:
            raise ValueError(
                f"the weights {path} are truncated or damaged ({error}); remove the file and fetch it again."
            ) from error
