"""Replace SGLang's extend kernel by `tree_attention` in the target's verify, where the target allows it.

Only plain attention in a verify is replaced. A prefill, and a layer that passes more than queries, keys and values, run
SGLang's own code."""

from __future__ import annotations

import logging
from typing import Any

import torch
from sglang.srt.layers.attention.triton_backend import TritonAttnBackend
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from torch import Tensor

from ddtree.kernels.tree_attention import MAX_HEAD_DIM, tree_attention

logger = logging.getLogger(__name__)
HALF_DTYPES = (torch.float16, torch.bfloat16)


class VerifyAttention:
    """Replaces `forward_extend` of the target's attention backend."""

    def __init__(self, backend: Any, width: int) -> None:
        self.backend = backend
        self.width = width
        self.stock = backend.forward_extend

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, layer: Any, forward_batch: Any, save_kv_cache: bool = True, **extra: Any
    ) -> Any:
        """Rows [tokens, heads * head_dim] in and out; the nodes' keys and values go to SGLang's pool, as in its own."""
        own = k is not None and getattr(forward_batch, "_attn_output", None) is None
        if not own or not forward_batch.forward_mode.is_target_verify() or any(x is not None for x in extra.values()):
            return self.stock(q, k, v, layer, forward_batch, save_kv_cache, **extra)
        metadata, pool = self.backend.forward_metadata, self.backend.token_to_kv_pool
        if save_kv_cache:
            location = KVWriteLoc(
                forward_batch.out_cache_loc, metadata.swa_out_cache_loc, full_loc=metadata.out_cache_loc_full_physical
            )
            pool.set_kv_buffer(layer, location, k, v)
        output = tree_attention(
            q.view(-1, layer.tp_q_head_num, layer.qk_head_dim),
            k.view(-1, layer.tp_k_head_num, layer.qk_head_dim),
            v.view(-1, layer.tp_v_head_num, layer.v_head_dim),
            (pool.get_key_buffer(layer.layer_id), pool.get_value_buffer(layer.layer_id)),
            (metadata.kv_indptr, metadata.kv_indices),
            (metadata.custom_mask, metadata.mask_indptr),
            nodes=self.width,
            scale=layer.scaling,
        )
        return output.view(q.shape)


def choose_attention(setting: str, runner: Any, width: int) -> str:
    """Choose the attention of every verify, "tree" or "sglang", and replace `forward_extend` for "tree".

    `setting` is DDTREE_ATTENTION. "auto" takes "tree" unless the target does not allow it, and logs the reason; "tree"
    raises ValueError then.
    """
    reason = "" if setting == "sglang" else target_problem(runner)
    if setting == "tree" and reason:
        raise ValueError(f'DDTREE_ATTENTION is "tree", but {reason}; "sglang" verifies with SGLang\'s extend kernel.')
    if setting == "sglang" or reason:
        logger.info("DDTREE verifies with SGLang's extend kernel: %s", reason or "DDTREE_ATTENTION is sglang")
        return "sglang"
    runner.attn_backend.forward_extend = VerifyAttention(runner.attn_backend, width)
    logger.info("DDTREE verifies with its tree attention")
    return "tree"


def target_problem(runner: Any) -> str:
    """Why tree attention cannot verify this target, or ""."""
    if type(runner.attn_backend) is not TritonAttnBackend:
        return f"the target's attention is {type(runner.attn_backend).__name__}, not TritonAttnBackend"
    if runner.attn_backend.dcp_size > 1 or runner.attn_backend.enable_deterministic:
        return "the server is deterministic or splits contexts over GPUs"
    if runner.kv_cache_dtype not in HALF_DTYPES or runner.kv_cache_dtype != runner.dtype:
        return f"keys and values are stored in {runner.kv_cache_dtype}, and the target computes in {runner.dtype}"
    layers = [module for module in runner.model.modules() if isinstance(module, RadixAttention)]
    reasons = (f"layer {layer.layer_id} {reason}" for layer in layers if (reason := _layer_problem(layer)))
    return next(reasons, "" if layers else "the target has no RadixAttention")


def _layer_problem(layer: Any) -> str:
    """Why this layer is not plain softmax attention over queries, keys and values, or ""."""
    if layer.attn_type != AttentionType.DECODER or layer.is_cross_attention:
        return "is not a decoder's self-attention"
    if layer.qk_head_dim != layer.v_head_dim or layer.qk_head_dim > MAX_HEAD_DIM:
        return f"has heads of {layer.qk_head_dim} and {layer.v_head_dim} numbers"
    if layer.logit_cap or layer.xai_temperature_len > 0 or layer.sliding_window_size > 0:
        return "caps, scales or windows its scores"
    if layer.k_scale is not None or layer.v_scale is not None:
        return "scales its keys or values"
    return ""
