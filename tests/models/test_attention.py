"""Shared-key attention gives what transformers' own sdpa gives: masked, causal, and behind a cache."""

import pytest
import torch
from ddtree.models.target import SHARED_KEYS
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM


@pytest.fixture(scope="module")
def models() -> tuple[LlamaForCausalLM, LlamaForCausalLM]:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=61,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    stock = LlamaForCausalLM._from_config(config, attn_implementation="sdpa").eval()
    ours = LlamaForCausalLM._from_config(config, attn_implementation=SHARED_KEYS).eval()
    ours.load_state_dict(stock.state_dict())
    return stock, ours


@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("masked", [False, True])
@torch.no_grad()
def test_a_pass_behind_a_cache_equals_stock_sdpa(
    models: tuple[LlamaForCausalLM, LlamaForCausalLM], n: int, masked: bool
) -> None:
    prefix, block = torch.randint(61, (2, 7)), torch.randint(61, (2, n))
    visible = torch.rand(2, 1, n, 7 + n) < 0.5
    visible[..., 0] = True
    mask = torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(torch.float32).min) if masked else None
    logits = []
    for model in models:
        cache = DynamicCache()
        before = model(prefix, past_key_values=cache, use_cache=True).logits
        after = model(block, attention_mask=mask, past_key_values=cache, use_cache=True).logits
        logits.append(torch.cat([before, after], dim=1))
    torch.testing.assert_close(logits[0], logits[1], atol=1e-5, rtol=1e-5)
