"""How others verify a tree: SGLang's stock pipeline, its DFlash path and its attention, on the same inputs as ours."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import torch
from torch import Tensor

from ddtree.backends import sgl
from ddtree.sampling import SamplingParams
from ddtree.workbook.speed.inputs import Scene
from ddtree.workbook.speed.layers import Layer

DFLASH_MODULE = "sglang.srt.speculative.dflash_utils"  # of SGLang 0.5.16, as the next
EXTEND_MODULE = "sglang.kernels.ops.attention.extend_attention"


def stock_missing(device: torch.device) -> str | None:
    """Why the stock pipeline cannot run here, or None."""
    return sgl.missing(device.type)


def dflash_missing(device: torch.device) -> str | None:
    """Why SGLang's DFlash verify cannot run here, or None."""
    return sgl.missing(device.type) or _unimported(DFLASH_MODULE, "DFlash verify")


def extend_missing(device: torch.device) -> str | None:
    """Why SGLang's extend attention cannot run here, or None."""
    if device.type != "cuda":
        return f"SGLang's extend attention runs on CUDA tensors, and these are on {device.type}"
    return _unimported(EXTEND_MODULE, "extend attention")


def _unimported(module: str, what: str) -> str | None:
    try:
        importlib.import_module(module)
    except Exception as error:  # half of SGLang is imported here, and any of it may be absent
        return f"SGLang's {what} cannot be imported: {type(error).__name__}: {error}"
    return None


def stock_verify(scene: Scene, sampling: SamplingParams) -> Tensor:
    """softmax, top-k and top-p renormalisation of every row, a zeroed draft, and the op; returns accept_index."""
    import sgl_kernel

    bs, q, vocab = scene.logits.shape
    probs = (scene.logits.reshape(bs * q, vocab).float() / sampling.temperature).softmax(dim=-1)
    if sampling.top_k:
        ks = torch.full((bs * q,), sampling.top_k, dtype=torch.int32, device=probs.device)
        probs = sgl_kernel.top_k_renorm_prob(probs, ks)
    if sampling.top_p < 1:
        ps = torch.full((bs * q,), sampling.top_p, dtype=torch.float32, device=probs.device)
        probs = sgl_kernel.top_p_renorm_prob(probs, ps)
    return _walk(scene, probs.reshape(bs, q, vocab))


def dflash_verify(scene: Scene, sampling: SamplingParams) -> Tensor:
    """SGLang's probabilities for a DFlash verify, with what it knows of a uniform batch, and the op."""
    target_probs = importlib.import_module(DFLASH_MODULE).build_dflash_verify_target_probs
    bs, q, vocab = scene.logits.shape
    device = scene.logits.device
    known = SimpleNamespace(
        temperatures=torch.full((bs, 1), sampling.temperature, device=device),
        top_ks=torch.full((bs,), sampling.top_k or vocab, dtype=torch.int32, device=device),
        top_ps=torch.full((bs,), sampling.top_p, device=device),
        need_top_k_sampling=sampling.top_k > 0,
        need_top_p_sampling=sampling.top_p < 1,
    )
    probs = target_probs(
        next_token_logits=scene.logits.reshape(bs * q, vocab).float(),
        sampling_info=known,
        draft_token_num=q,
        bs=bs,
        max_top_k=sampling.top_k or None,
        uniform_top_k_value=sampling.top_k or None,
    )
    return _walk(scene, probs)


def extend_attention(layer: Layer) -> Tensor:
    """SGLang's attention of a verify, as its Triton backend calls it: keys and values copied together first."""
    forward = importlib.import_module(EXTEND_MODULE).extend_attention_fwd
    out = torch.empty(layer.q.shape, dtype=layer.q.dtype, device=layer.q.device)
    forward(
        layer.q, layer.k.contiguous(), layer.v.contiguous(), out, *layer.pool, layer.rows, layer.indptr,
        layer.indices, layer.mask, True, layer.mask_starts, layer.nodes, 1.0, 1.0, layer.scale,
    )  # fmt: skip
    return out


def _walk(scene: Scene, probs: Tensor) -> Tensor:
    import sgl_kernel

    bs, q = scene.tree.tokens.shape
    device = probs.device
    predict = torch.full((bs * q,), -1, dtype=torch.int32, device=device)
    accept_index = torch.full((bs, scene.tree.max_depth + 1), -1, dtype=torch.int32, device=device)
    accept_count = torch.zeros(bs, dtype=torch.int32, device=device)
    sgl_kernel.tree_speculative_sampling_target_only(
        predicts=predict,
        accept_index=accept_index,
        accept_token_num=accept_count,
        candidates=scene.tree.tokens,
        retrive_index=scene.tables.index,
        retrive_next_token=scene.tables.next_token,
        retrive_next_sibling=scene.tables.next_sibling,
        uniform_samples=scene.coins,
        uniform_samples_for_final_sampling=scene.final_coins,
        target_probs=probs,
        draft_probs=torch.zeros_like(probs),
        threshold_single=1.0,
        threshold_acc=1.0,
    )
    return accept_index
