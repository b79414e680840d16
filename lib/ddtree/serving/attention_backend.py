"""The target's attention in a verify: `tree_attention` for SGLang's extend kernel, where it serves the target.

Invariant: only a verify's plain layers are changed; a prefill, and a layer that asks for more than queries, keys and
values, run SGLang's own code.
"""

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
HALVES = (torch.float16, torch.bfloat16)


class VerifyAttention:
    """Stands in `forward_extend` of the target's attention backend."""

    def __init__(self, backend: Any, width: int) -> None:
        self.backend = backend
        self.width = width
        self.stock = backend.forward_extend

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, layer: Any, forward_batch: Any, save_kv_cache: bool = True, **asked: Any
    ) -> Any:
        """Rows [tokens, heads * size] as SGLang hands them over; the nodes' keys and values are kept as it does."""
        own = k is not None and getattr(forward_batch, "_attn_output", None) is None
        if not own or not forward_batch.forward_mode.is_target_verify() or any(x is not None for x in asked.values()):
            return self.stock(q, k, v, layer, forward_batch, save_kv_cache, **asked)
        at, pool = self.backend.forward_metadata, self.backend.token_to_kv_pool
        if save_kv_cache:
            place = KVWriteLoc(
                forward_batch.out_cache_loc, at.swa_out_cache_loc, full_loc=at.out_cache_loc_full_physical
            )
            pool.set_kv_buffer(layer, place, k, v)
        answer = tree_attention(
            q.view(-1, layer.tp_q_head_num, layer.qk_head_dim),
            k.view(-1, layer.tp_k_head_num, layer.qk_head_dim),
            v.view(-1, layer.tp_v_head_num, layer.v_head_dim),
            (pool.get_key_buffer(layer.layer_id), pool.get_value_buffer(layer.layer_id)),
            (at.kv_indptr, at.kv_indices),
            (at.custom_mask, at.mask_indptr),
            nodes=self.width,
            scale=layer.scaling,
        )
        return answer.view(q.shape)


def choose_attention(setting: str, runner: Any, width: int) -> str:
    """Replace the backend's `forward_extend` or leave it; "tree" or "sglang", whichever verifies from now on.

    `setting` "auto" takes the tree's where it serves the target, and the log says why not. Raises ValueError for "tree"
    where it does not.
    """
    reason = "" if setting == "sglang" else unserved(runner)
    if setting == "tree" and reason:
        raise ValueError(f'DDTREE_ATTENTION is "tree", but {reason}; "sglang" verifies with SGLang\'s extend kernel.')
    if setting == "sglang" or reason:
        logger.info("DDTREE verifies with SGLang's extend kernel: %s", reason or "DDTREE_ATTENTION says so")
        return "sglang"
    runner.attn_backend.forward_extend = VerifyAttention(runner.attn_backend, width)
    logger.info("DDTREE verifies with its tree attention")
    return "tree"


def unserved(runner: Any) -> str:
    """Why tree attention cannot verify this target, or ""."""
    if type(runner.attn_backend) is not TritonAttnBackend:
        return f"the target's attention is {type(runner.attn_backend).__name__}, not TritonAttnBackend"
    if runner.attn_backend.dcp_size > 1 or runner.attn_backend.enable_deterministic:
        return "the server is deterministic or splits contexts over GPUs"
    if runner.kv_cache_dtype not in HALVES or runner.kv_cache_dtype != runner.dtype:
        return f"keys and values are kept in {runner.kv_cache_dtype}, and the target computes in {runner.dtype}"
    layers = [module for module in runner.model.modules() if isinstance(module, RadixAttention)]
    reasons = (f"layer {layer.layer_id} {reason}" for layer in layers if (reason := _unplain(layer)))
    return next(reasons, "" if layers else "the target has no RadixAttention")


def _unplain(layer: Any) -> str:
    """What this layer's attention is beside softmax over queries, keys and values, or ""."""
    if layer.attn_type != AttentionType.DECODER or layer.is_cross_attention:
        return "is not a decoder's self-attention"
    if layer.qk_head_dim != layer.v_head_dim or layer.qk_head_dim > MAX_HEAD_DIM:
        return f"has heads of {layer.qk_head_dim} and {layer.v_head_dim} numbers"
    if layer.logit_cap or layer.xai_temperature_len > 0 or layer.sliding_window_size > 0:
        return "caps, scales or windows its scores"
    if layer.k_scale is not None or layer.v_scale is not None:
        return "scales its keys or values"
    return ""
