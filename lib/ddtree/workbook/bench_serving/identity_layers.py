"""Identity layers that make a target slower and leave every text as it is, to emulate a larger model's step.

An identity layer does a layer's whole work with the first real layer's weights and adds zero to the residual, because
its two output projections are zero. It is inserted before the first layer, where nothing is rounded differently, even
in a runtime that adds and normalises in one kernel: its last norm reads a sum that is not yet rounded,
which a layer after the last one would change.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from ddtree.models.weights import require_weights

ARCHITECTURES = ("LlamaForCausalLM", "Qwen3ForCausalLM")
ZEROED = ("self_attn.o_proj.", "mlp.down_proj.")
TOKENIZER_AND_SUCH = ("*.json", "*.jinja", "*.txt", "*.model")
FILE_BYTES = 2**31  # of added layers in one file, at most, and one layer at least
LAYER = re.compile(r"^model\.layers\.(\d+)\.")


def add_identity_layers(folder: Path, out: Path, extra_layers: int) -> Path:
    """Write the model of `folder` with `extra_layers` identity layers in front to `out`, and return `out`.

    Raises ValueError for a model that is neither Llama nor Qwen3, is quantised, or has layers of several kinds.
    """
    if extra_layers < 1:
        raise ValueError(f"extra_layers is {extra_layers}; a deeper model has at least 1 more.")
    config = _config(folder)
    _refuse(config, folder)
    require_weights(folder)
    out.mkdir(parents=True, exist_ok=True)
    for pattern in TOKENIZER_AND_SUCH:
        for path in folder.glob(pattern):
            shutil.copyfile(path, out / path.name)
    config["num_hidden_layers"] += extra_layers
    if kinds := config.get("layer_types"):
        config["layer_types"] = [kinds[0]] * config["num_hidden_layers"]
    (out / "config.json").write_text(json.dumps(config, indent=2))
    _write_weights(folder, out, extra_layers)
    return out


def add_identity_layers_to_drafter(folder: Path, out: Path, extra_layers: int) -> Path:
    """Write the DFlash drafter of `folder` for a target deepened so: it reads the same layers, which count on.

    Weights are linked. Raises ValueError for a config that names no target_layer_ids.
    """
    config = _config(folder)
    layers = config.get("dflash_config", {}).get("target_layer_ids")
    if not layers:
        raise ValueError(
            f"{folder / 'config.json'} names no dflash_config.target_layer_ids, so it is no DFlash drafter."
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


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return config


def _refuse(config: dict[str, Any], folder: Path) -> None:
    found = ", ".join(config.get("architectures") or ["no architecture"])
    if found not in ARCHITECTURES:
        raise ValueError(f"{folder} holds {found}; identity layers are known for {' and '.join(ARCHITECTURES)}.")
    if config.get("quantization_config"):
        raise ValueError(f"{folder} holds quantised weights; identity layers are made of plain ones.")
    if len(set(config.get("layer_types") or [])) > 1:
        raise ValueError(f"{folder} has layers of several kinds; which kind an added one should be is not known.")


def _write_weights(folder: Path, out: Path, extra_layers: int) -> None:
    sources = sorted(folder.glob("*.safetensors"))
    first = _first_layer(sources)
    each = sum(weight.nbytes for weight in first.values())
    parts = list(_portions(extra_layers, max(1, FILE_BYTES // each)))
    files = len(sources) + len(parts)
    names = (f"model-{number + 1:05}-of-{files:05}.safetensors" for number in range(files))
    where: dict[str, str] = {}
    size = 0
    for source in sources:
        moved = {_moved(key, extra_layers): weight for key, weight in load_file(source).items()}
        size += _save(moved, out, next(names), where)
    for part in parts:
        size += _save(_identities(first, part), out, next(names), where)
    index = {"metadata": {"total_size": size}, "weight_map": where}
    (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))


def _first_layer(sources: list[Path]) -> dict[str, Tensor]:
    """Weights of layer 0 by their names within it; those that must not add anything are zero."""
    found: dict[str, Tensor] = {}
    for source in sources:
        with safe_open(source, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118  it is no mapping
                if key.startswith("model.layers.0."):
                    name = key.removeprefix("model.layers.0.")
                    weight = file.get_tensor(key)
                    found[name] = torch.zeros_like(weight) if name.startswith(ZEROED) else weight
    return found


def _identities(first: dict[str, Tensor], numbers: range) -> dict[str, Tensor]:
    return {f"model.layers.{n}.{name}": weight.clone() for n in numbers for name, weight in first.items()}


def _portions(count: int, at_most: int) -> Iterator[range]:
    for start in range(0, count, at_most):
        yield range(start, min(start + at_most, count))


def _moved(key: str, by: int) -> str:
    return LAYER.sub(lambda match: f"model.layers.{int(match[1]) + by}.", key)


def _save(weights: dict[str, Tensor], out: Path, name: str, where: dict[str, str]) -> int:
    save_file(weights, out / name, metadata={"format": "pt"})
    where.update(dict.fromkeys(weights, name))
    return sum(weight.nbytes for weight in weights.values())
