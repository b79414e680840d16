"""Random models small enough to check by hand, in float32, and peaked enough that drafts are sometimes right."""

from collections.abc import Sequence

import torch
from ddtree.models.drafter import Drafter
from ddtree.models.target import Target
from dflash.model import DFlashDraftModel
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config

HIDDEN, LAYERS, FEATURE_LAYERS = 32, 2, (0, 1)
SIZES = {
    "hidden_size": HIDDEN,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
}


class DigitTokenizer:
    """Text is token ids in decimal, a space between."""

    chat_template = None

    def __call__(self, message: str) -> dict[str, list[int]]:
        return {"input_ids": [int(word) for word in message.split()]}

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str:
        return " ".join(map(str, tokens))


def tiny_llama(vocab: int = 64, *, seed: int = 0, attention: str = "sdpa") -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(vocab_size=vocab, num_hidden_layers=LAYERS, tie_word_embeddings=False, **SIZES)
    config._attn_implementation = attention
    return LlamaForCausalLM(config).float().eval()


def tiny_target(
    vocab: int = 64, *, seed: int = 0, attention: str = "sdpa", eos_ids: Sequence[int] = (), features: bool = True
) -> Target:
    return Target(
        tiny_llama(vocab, seed=seed, attention=attention),
        DigitTokenizer(),
        eos_ids=eos_ids,
        feature_layers=FEATURE_LAYERS if features else (),
    )


def tiny_drafter(target: Target, *, seed: int = 1, block_size: int = 4, mask_token_id: int | None = 0) -> Drafter:
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=target.output_head.out_features,
        num_hidden_layers=2,
        block_size=block_size,
        num_target_layers=LAYERS,
        dflash_config={"mask_token_id": mask_token_id, "target_layer_ids": list(FEATURE_LAYERS)},
        **SIZES,
    )
    return Drafter(DFlashDraftModel(config).float(), target)
