"""Weights are whole safetensors files: a pickle is refused by name, and a truncated file before a model is built."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open

PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")


def require_weights(folder: Path) -> None:
    """ValueError unless `folder` has safetensors files that each reach as far as their headers say.

    Only headers are read. The message names the file, and how to get a right one.
    """
    if not list(folder.glob("*.safetensors")):
        pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
        if pickles:
            raise ValueError(
                f"{folder} holds its weights as {', '.join(pickles)}, a pickle that could run code when it is read; "
                "only safetensors are loaded. Convert it where you trust it, or name a model that has safetensors."
            )
        raise ValueError(f"{folder} has no *.safetensors, so it holds no weights.")
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
