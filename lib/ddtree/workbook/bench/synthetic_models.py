"""Make random-weight pairs in the shapes of real models, so that a round can be timed without any model's files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ddtree.models.drafter import Drafter
from ddtree.models.target import Target
from ddtree.models.zoo import Pair


@dataclass(frozen=True, slots=True)
class Shape:
    """A Qwen3 target and the DFlash drafter that would fit it."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool  # the output head is the embedding
    feature_layers: tuple[int, ...]  # whose outputs the drafter reads
    mask_token_id: int
    drafter_layers: int = 5  # of the published DFlash drafters for Qwen3, as the next
    block_size: int = 16


QWEN3_FEATURES = (1, 9, 17, 25, 33)
SHAPES = {
    "qwen3-8b-shape": Shape(4096, 12288, 36, 32, 8, 128, 151936, False, QWEN3_FEATURES, 151669),
    "qwen3-4b-shape": Shape(2560, 9728, 36, 32, 8, 128, 151936, True, QWEN3_FEATURES, 151669),
    "tiny-shape": Shape(32, 48, 2, 4, 2, 8, 128, False, (0, 1), 0, drafter_layers=1, block_size=4),
}


class IdTokenizer:
    """For models without a language: text is token ids in decimal, separated by spaces."""

    chat_template = None

    def __call__(self, message: str) -> dict[str, list[int]]:
        return {"input_ids": [int(word) for word in message.split()]}

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return " ".join(map(str, tokens))


def random_pair(name: str, *, dtype: torch.dtype, device: str, seed: int = 0) -> Pair:
    """A pair of SHAPES with random weights, made on the device; no token ends an answer.

    Its drafts are accepted about as often as a guess, so its rounds show only costs and not gains.
    Raises ValueError for an unknown name, ImportError where dflash is not installed.
    """
    from dflash.model import DFlashDraftModel
    from transformers import Qwen3ForCausalLM

    if name not in SHAPES:
        raise ValueError(f'shape is "{name}"; it must be one of {", ".join(SHAPES)}.')
    shape = SHAPES[name]
    torch.manual_seed(seed)
    with torch.device(device), _default_dtype(dtype):
        target_model = Qwen3ForCausalLM(target_config(shape)).eval()
        draft_model = DFlashDraftModel(drafter_config(shape)).eval()
    target = Target(target_model, IdTokenizer(), eos_ids=(), feature_layers=shape.feature_layers)
    facts = {
        "model": name,
        "drafter": f"{name}, random",
        "dtype": str(dtype).removeprefix("torch."),
        "device": device,
        "attention": target_model.config._attn_implementation,
        "packed_linears": False,
        "block_size": draft_model.block_size,
    }
    return Pair(target, Drafter(draft_model, target), facts)


def target_config(shape: Shape) -> Any:
    """The target's configuration in transformers."""
    return _config(shape, num_hidden_layers=shape.layers, tie_word_embeddings=shape.tied)


def drafter_config(shape: Shape) -> Any:
    """The drafter's configuration in dflash."""
    dflash = {"mask_token_id": shape.mask_token_id, "target_layer_ids": list(shape.feature_layers)}
    return _config(
        shape,
        num_hidden_layers=shape.drafter_layers,
        num_target_layers=shape.layers,
        block_size=shape.block_size,
        dflash_config=dflash,
    )


def _config(shape: Shape, **more: Any) -> Any:
    from transformers import Qwen3Config

    common: dict[str, Any] = {
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "attn_implementation": "sdpa",
    }
    return Qwen3Config(**common, **more)


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
