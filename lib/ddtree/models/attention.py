"""Scaled dot-product attention that shares keys among grouped heads also under a mask, instead of copying them."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

SHARED_KEYS = "sdpa_shared_keys"  # for CPUs: on CUDA a mask with shared keys takes the slow math path


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, None]:
    """query [bs, heads, n, d], key and value [bs, kv_heads, keys, d], additive mask; returns [bs, n, heads, d]."""
    is_causal = attention_mask is None and query.shape[2] > 1 and getattr(module, "is_causal", True)
    mixed = scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, scale=scaling, is_causal=is_causal, enable_gqa=True
    )
    return mixed.transpose(1, 2).contiguous(), None


AttentionInterface.register(SHARED_KEYS, attend)
AttentionMaskInterface.register(SHARED_KEYS, sdpa_mask)  # whoever gives no mask gets the one sdpa would get
