"""Add identity layers, which make a target slower and leave every text unchanged, to emulate a larger model's step.

An identity layer does a layer's whole work with the first real layer's weights and adds zero to the residual, because
its two output projections are zero. It goes in front of the first layer, where it changes no rounding, even in a
runtime that adds and normalises in one kernel: there a layer after the last one would round the sum that the final norm
reads.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from ddtree.models.weights import require_weights

ARCHITECTURES = ("LlamaForCausalLM", "Qwen3ForCausalLM")
ZEROED = ("self_attn.o_proj.", "mlp.down_proj.")
OTHER_FILES = ("*.json", "*.jinja", "*.txt", "*.model")  # the tokenizer's among them
FILE_BYTES = 2**31  # of added layers in one file at most, but at least one layer
LAYER = re.compile(r"^model\.layers\.(\d+)\.")


def add_identity_layers(folder: Path, out: Path, extra_layers: int) -> Path:
    """Write the model of `folder` with `extra_layers` identity layers in front to `out`, and return `out`.

    Raises ValueError for a model that is neither Llama nor Qwen3, is quantised, or has layers of several kinds.
    """
    if extra_layers < 1:
        raise ValueError(f"extra_layers is {extra_layers}; it must be at least 1.")
    config = _read_config(folder)
    _check_config(config, folder)
    require_weights(folder)
    out.mkdir(parents=True, exist_ok=True)
    for pattern in OTHER_FILES:
        for path in folder.glob(pattern):
            shutil.copyfile(path, out / path.name)
    config["num_hidden_layers"] += extra_layers
    if kinds := config.get("layer_types"):
        config["layer_types"] = [kinds[0]] * config["num_hidden_layers"]
    (out / "config.json").write_text(json.dumps(config, indent=2))
    _write_weights(folder, out, extra_layers)
    return out


def add_identity_layers_to_drafter(folder: Path, out: Path, extra_layers: int) -> Path:
    """Write the DFlash drafter of `folder` for a target with identity layers: it reads the same layers, renumbered.

    Weights are linked. Raises ValueError for a config without target_layer_ids.
    """
    config = _read_config(folder)
    layers = config.get("dflash_config", {}).get("target_layer_ids")
    if not layers:
        raise ValueError(
            f"{folder / 'config.json'} has no dflash_config.target_layer_ids, so it is not a DFlash drafter's."
        )
    config["dflash_config"]["target_layer_ids"] = [layer + extra_layers for layer in layers]
    if "num_target_layers" in config:
        config["num_target_layers"] += extra_layers
    out.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.name != "config.json" and not path.name.startswith("."):
            (out / path.name).symlink_to(path.resolve())
    (out / "config.json").write_text(json.dumps(config, indent=2))
    return out


def _read_config(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "config.json").read_text(encoding="utf-8")))


def _check_config(config: dict[str, Any], folder: Path) -> None:
    found = ", ".join(config.get("architectures") or ["no architecture"])
    if found not in ARCHITECTURES:
        raise ValueError(f"{folder} holds {found}; identity layers can be made for {' and '.join(ARCHITECTURES)}.")
    if config.get("quantization_config"):
        raise ValueError(f"{folder} holds quantised weights; identity layers can only be made of plain ones.")
    if len(set(config.get("layer_types") or [])) > 1:
        raise ValueError(f"{folder} has layers of several kinds; identity layers need layers of one kind.")


def _write_weights(folder: Path, out: Path, extra_layers: int) -> None:
    sources = sorted(folder.glob("*.safetensors"))
    first = _first_layer(sources)
    layers_a_file = max(1, FILE_BYTES // sum(weight.nbytes for weight in first.values()))
    starts = range(0, extra_layers, layers_a_file)
    files = len(sources) + len(starts)
    names = (f"model-{number + 1:05}-of-{files:05}.safetensors" for number in range(files))
    where: dict[str, str] = {}
    size = 0

    def save(weights: dict[str, Tensor]) -> None:
        nonlocal size
        name = next(names)
        save_file(weights, out / name, metadata={"format": "pt"})
        where.update(dict.fromkeys(weights, name))
        size += sum(weight.nbytes for weight in weights.values())

    for source in sources:
        save({_renumbered(key, extra_layers): weight for key, weight in load_file(source).items()})
    for start in starts:
        numbers = range(start, min(start + layers_a_file, extra_layers))
        save({f"model.layers.{n}.{name}": weight.clone() for n in numbers for name, weight in first.items()})
    index = {"metadata": {"total_size": size}, "weight_map": where}
    (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))


def _first_layer(sources: list[Path]) -> dict[str, Tensor]:
    """Weights of layer 0 by their names within it, output projections zero."""
    found: dict[str, Tensor] = {}
    for source in sources:
        with safe_open(source, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118  the file is not a mapping
                if key.startswith("model.layers.0."):
                    name = key.removeprefix("model.layers.0.")
                    weight = file.get_tensor(key)
                    found[name] = torch.zeros_like(weight) if name.startswith(ZEROED) else weight
    return found


def _renumbered(key: str, by: int) -> str:
    return LAYER.sub(lambda match: f"model.layers.{int(match[1]) + by}.", key)
