"""Find a target and its drafter by name, hub id or folder, and load them; nothing is guessed, nothing falls back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ddtree.models import smollm2
from ddtree.models.download_cache import get_or_create, sha256
from ddtree.models.drafter import Drafter
from ddtree.models.target import SHARED_KEYS, Target, require_full_attention
from ddtree.models.weights import can_pack, damaged_weights, dequantise, pack_linears, require_weights

ASSETS = Path(__file__).parent / "assets"
INT8_FILE = "model.int8.safetensors"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
DEVICES = ("cpu", "cuda")
HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model"]  # no pickles, no code


@dataclass(frozen=True, slots=True)
class ZooEntry:
    """A pair with a name: how to fill its target's cache entry, and its drafter's folder, bundled with the package."""

    fill_target: Callable[[Path], None]
    drafter_asset: str


ZOO = {"smollm2-135m": ZooEntry(smollm2.fill, "smollm2-135m-dflash")}


@dataclass(frozen=True, slots=True)
class Pair:
    """A loaded target and drafter, and the facts about them that a record holds."""

    target: Target
    drafter: Drafter
    facts: dict[str, Any]


def fetch(model: str) -> Path:
    """The folder of a target's files, fetched into the cache if necessary.

    `model` is a zoo name, a folder, or a hub id (org/name). Raises FileNotFoundError saying where it was looked for.
    """
    if model in ZOO:
        return get_or_create(model, ZOO[model].fill_target)
    return _folder_or_hub(model, "model")


def verify(model: str) -> Path:
    """`fetch` of a zoo name and its drafter, with the contents of their files checked; a damaged one is made again.

    Raises ValueError for a folder or hub id, for which there is nothing to check against.
    """
    if model not in ZOO:
        raise ValueError(
            f'only the cache entries of {_names()} can be verified; the right contents of "{model}" are unknown.'
        )
    _bundled_drafter(model, hashes=True)
    return get_or_create(model, ZOO[model].fill_target, hashes=True)


def fetch_drafter(model: str, drafter: str = "auto") -> Path:
    """The folder of a drafter's files, in the layout `dflash` reads; "auto" is the one bundled for a zoo name.

    Raises ValueError for "auto" with another target, FileNotFoundError saying where a drafter was looked for.
    """
    if drafter != "auto":
        return _folder_or_hub(drafter, "drafter")
    if model not in ZOO:
        raise ValueError(
            f'drafter is "auto", but a drafter is bundled only for {_names()}; name the one trained for "{model}".'
        )
    return _bundled_drafter(model)


def load_pair(model: str, drafter: str = "auto", *, dtype: str = "auto", device: str = "cpu") -> Pair:
    """Load both models for inference.

    Args:
        dtype: "float32", "bfloat16", "float16", or "auto": bfloat16 on a GPU or a CPU with bf16 units, else float32.
        device: "cpu" or "cuda".

    Raises FileNotFoundError, ValueError or RuntimeError with a sentence that says what is wrong and what is right.
    """
    if device not in DEVICES:
        raise ValueError(f'device is "{device}"; it must be "cpu" or "cuda".')
    if device == "cuda" and not torch.cuda.is_available():
        raise RuntimeError('device is "cuda", but torch finds no CUDA device here; use device: cpu.')
    if dtype != "auto" and dtype not in DTYPES:
        raise ValueError(f'dtype is "{dtype}"; it must be "auto", {", ".join(DTYPES)}.')
    dtype = _best_dtype(device) if dtype == "auto" else dtype
    drafter_folder = fetch_drafter(model, drafter)  # first: it is small, and "auto" may be impossible
    target_folder = fetch(model)
    _check_target_config(target_folder)
    for folder in (target_folder, drafter_folder):
        require_weights(folder)
    target_model, draft_model = _load_models(target_folder, drafter_folder, DTYPES[dtype], device)
    packed = device == "cpu" and can_pack(DTYPES[dtype])
    if packed:
        pack_linears(target_model)
        pack_linears(draft_model)
    target = Target(
        target_model,
        _load_tokenizer(target_folder),
        eos_ids=_eos_ids(target_model),
        feature_layers=draft_model.target_layer_ids,
    )
    facts = {
        "model": model,
        "drafter": drafter,
        "dtype": dtype,
        "device": device,
        "attention": target_model.config._attn_implementation,
        "packed_linears": packed,
        "block_size": draft_model.block_size,
    }
    return Pair(target, Drafter(draft_model, target), facts)


def _bundled_drafter(model: str, *, hashes: bool = False) -> Path:
    asset = ASSETS / ZOO[model].drafter_asset
    version = sha256(asset / INT8_FILE)[:12]  # a release with other weights must not find the old entry
    return get_or_create(f"{asset.name}-{version}", lambda folder: _restore_drafter(asset, folder), hashes=hashes)


def _check_target_config(folder: Path) -> None:
    """ValueError for a model that cannot be a target, from config.json only, since weights take minutes to load."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (ValueError, KeyError, OSError) as error:
        raise ValueError(
            f"{folder / 'config.json'} does not describe a model that transformers knows: {error}"
        ) from error
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING or config.is_encoder_decoder:
        raise ValueError(
            f"the target in {folder} is of kind {config.model_type}; DDTree needs a decoder-only language model."
        )
    require_full_attention(config)


def _load_models(target: Path, drafter: Path, dtype: torch.dtype, device: str) -> tuple[Any, Any]:
    from dflash.model import DFlashDraftModel
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    options = {"dtype": dtype, "use_safetensors": True, "local_files_only": True}
    attention = SHARED_KEYS if device == "cpu" else "sdpa"
    target_model: Any = AutoModelForCausalLM.from_pretrained(
        target, trust_remote_code=False, attn_implementation=attention, **options
    )
    draft_model: Any = DFlashDraftModel.from_pretrained(drafter, **options)
    if draft_model.config.hidden_size != target_model.config.hidden_size:
        raise ValueError(
            f"the drafter in {drafter} has hidden size {draft_model.config.hidden_size}, the target "
            f"{target_model.config.hidden_size}; a DFlash drafter shares its target's embedding, so they must be equal."
        )
    return target_model.to(device).eval(), draft_model.to(device).eval()


def _load_tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def _eos_ids(model: Any) -> list[int]:
    found = model.generation_config.eos_token_id
    if found is None:
        raise ValueError("the target's generation_config has no eos_token_id, the token that ends an answer.")
    return [found] if isinstance(found, int) else list(found)


def _best_dtype(device: str) -> str:
    if device == "cuda":
        return "bfloat16"
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    return "bfloat16" if "avx512_bf16" in flags or "amx_bf16" in flags else "float32"


def _restore_drafter(asset: Path, folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = dequantise(load_file(asset / INT8_FILE), torch.bfloat16)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    shutil.copyfile(asset / "config.json", folder / "config.json")


def _folder_or_hub(name: str, what: str) -> Path:
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise FileNotFoundError(f"{what} folder {folder} has no config.json, so it is not a model folder.")
        return folder
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise FileNotFoundError(
            f'{what} "{name}" is neither a local folder, nor a hub id (org/name), nor in the zoo ({_names()}).'
        )
    return _from_hub(name, what)


def _from_hub(hub_id: str, what: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HUB_CACHE

    try:
        folder = Path(snapshot_download(hub_id, allow_patterns=HUB_FILES))
        if problem := damaged_weights(folder):
            print(f"the weights {problem}; they are fetched again.", flush=True)
            folder = Path(snapshot_download(hub_id, allow_patterns=HUB_FILES, force_download=True))
        return folder
    except Exception as error:
        raise FileNotFoundError(
            f'{what} "{hub_id}" was looked for in {HF_HUB_CACHE} and on the Hugging Face hub, and could not be loaded '
            f"({type(error).__name__}). Check the name and the network, or give a folder with the model."
        ) from error


def _names() -> str:
    return ", ".join(f'"{name}"' for name in ZOO)
