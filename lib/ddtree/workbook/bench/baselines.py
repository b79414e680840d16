"""Run what others use for a round on the same inputs: a heap per request, SGLang's verify pipelines and attention."""

from __future__ import annotations

import heapq
import importlib
import math
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor

from ddtree.backends import sgl
from ddtree.sampling import SamplingParams
from ddtree.tree import DraftTree
from ddtree.workbook.bench.inputs import LayerInputs, RoundInputs

DFLASH_MODULE = "sglang.srt.speculative.dflash_utils"  # of SGLang 0.5.16, as the next
EXTEND_MODULE = "sglang.kernels.ops.attention.extend_attention"


def heap_tree(draft_logits: Tensor, root_tokens: Tensor, *, budget: int, topk_cap: int) -> DraftTree:
    """`build_tree` as DDTree's authors and the serving patches after them do it: one heap for each request.

    The same trees except at ties, in `build_tree`'s shapes, on the device of `draft_logits`.
    """
    bs, depth, vocab = draft_logits.shape
    branch = min(topk_cap, budget, vocab)
    logits = draft_logits.float()
    values, ids = logits.topk(branch, dim=-1)
    logps = (values - logits.logsumexp(dim=-1, keepdim=True)).tolist()
    ids_on_host, roots = ids.tolist(), root_tokens.tolist()

    q = budget + 1
    tokens, depths = (np.zeros((bs, q), dtype=np.int64) for _ in range(2))
    parents = np.full((bs, q), -1, dtype=np.int64)
    node_logws = np.full((bs, q), -np.inf, dtype=np.float32)
    sizes = np.empty(bs, dtype=np.int64)
    for b in range(bs):
        nodes = heap_row(logps[b], budget)
        n = sizes[b] = len(nodes) + 1
        tokens[b, 0], node_logws[b, 0] = roots[b], 0.0
        if nodes:
            weights, node_parents, node_depths, ranks = zip(*nodes, strict=True)
            parents[b, 1:n], depths[b, 1:n], node_logws[b, 1:n] = node_parents, node_depths, weights
            tokens[b, 1:n] = [ids_on_host[b][d - 1][r] for d, r in zip(node_depths, ranks, strict=True)]
    arrays = {"tokens": tokens, "parents": parents, "depths": depths, "node_logws": node_logws, "sizes": sizes}
    on_device = {name: torch.from_numpy(array).to(draft_logits.device) for name, array in arrays.items()}
    return DraftTree(**on_device, max_depth=depth)


def heap_row(logps: Sequence[Sequence[float]], budget: int) -> list[tuple[float, int, int, int]]:
    """(log-probability, parent, depth, rank) of the best prefixes of [depth, branch] log-probabilities, best first.

    The best prefix is popped, its next sibling and first child are pushed: only these can become the next best.
    """
    depth, branch = len(logps), len(logps[0]) if logps else 0
    if not depth or not branch:
        return []
    nodes: list[tuple[float, int, int, int]] = []
    heap = [(-logps[0][0], 1, 0, 0)]  # negative log-probability, depth, parent, rank: ties ordered as by build_tree
    while heap and len(nodes) < budget:
        negative, d, parent, rank = heapq.heappop(heap)
        if negative == math.inf:
            break
        nodes.append((-negative, parent, d, rank))
        if rank + 1 < branch:
            heapq.heappush(heap, (negative + logps[d - 1][rank] - logps[d - 1][rank + 1], d, parent, rank + 1))
        if d < depth:
            heapq.heappush(heap, (negative - logps[d][0], d + 1, len(nodes), 0))
    return nodes


def dflash_missing(device: torch.device) -> str | None:
    """Why SGLang's DFlash verify cannot run here, or None."""
    return sgl.missing(device.type) or _import_error(DFLASH_MODULE, "DFlash verify")


def extend_missing(device: torch.device) -> str | None:
    """Why SGLang's extend attention cannot run here, or None."""
    if device.type != "cuda":
        return f"SGLang's extend attention runs on CUDA tensors, and these are on {device.type}"
    return _import_error(EXTEND_MODULE, "extend attention")


def _import_error(module: str, what: str) -> str | None:
    try:
        importlib.import_module(module)
    except Exception as error:  # it imports half of SGLang, any part of which may be absent
        return f"SGLang's {what} cannot be imported: {type(error).__name__}: {error}"
    return None


def stock_verify(inputs: RoundInputs, sampling: SamplingParams) -> Tensor:
    """softmax, top-k and top-p renormalisation of every row, a zeroed draft, and the op; returns accept_index."""
    import sgl_kernel

    bs, q, vocab = inputs.logits.shape
    probs = (inputs.logits.reshape(bs * q, vocab).float() / sampling.temperature).softmax(dim=-1)
    if sampling.top_k:
        ks = torch.full((bs * q,), sampling.top_k, dtype=torch.int32, device=probs.device)
        probs = sgl_kernel.top_k_renorm_prob(probs, ks)
    if sampling.top_p < 1:
        ps = torch.full((bs * q,), sampling.top_p, dtype=torch.float32, device=probs.device)
        probs = sgl_kernel.top_p_renorm_prob(probs, ps)
    return _run_op(inputs, probs.reshape(bs, q, vocab))


def dflash_verify(inputs: RoundInputs, sampling: SamplingParams) -> Tensor:
    """SGLang's probabilities for a DFlash verify, with the shortcuts it takes for a uniform batch, and the op."""
    target_probs = importlib.import_module(DFLASH_MODULE).build_dflash_verify_target_probs
    bs, q, vocab = inputs.logits.shape
    device = inputs.logits.device
    sampling_info = SimpleNamespace(
        temperatures=torch.full((bs, 1), sampling.temperature, device=device),
        top_ks=torch.full((bs,), sampling.top_k or vocab, dtype=torch.int32, device=device),
        top_ps=torch.full((bs,), sampling.top_p, device=device),
        need_top_k_sampling=sampling.top_k > 0,
        need_top_p_sampling=sampling.top_p < 1,
    )
    probs = target_probs(
        next_token_logits=inputs.logits.reshape(bs * q, vocab).float(),
        sampling_info=sampling_info,
        draft_token_num=q,
        bs=bs,
        max_top_k=sampling.top_k or None,
        uniform_top_k_value=sampling.top_k or None,
    )
    return _run_op(inputs, probs)


def extend_attention(layer: LayerInputs) -> Tensor:
    """SGLang's attention of a verify, as its Triton backend calls it: keys and values made contiguous first."""
    forward = importlib.import_module(EXTEND_MODULE).extend_attention_fwd
    out = torch.empty(layer.q.shape, dtype=layer.q.dtype, device=layer.q.device)
    forward(
        layer.q, layer.k.contiguous(), layer.v.contiguous(), out, *layer.pool, layer.rows, layer.indptr,
        layer.indices, layer.mask, True, layer.mask_starts, layer.nodes, 1.0, 1.0, layer.scale,
    )  # fmt: skip
    return out


def _run_op(inputs: RoundInputs, probs: Tensor) -> Tensor:
    import sgl_kernel

    bs, q = inputs.tree.tokens.shape
    device = probs.device
    predict = torch.full((bs * q,), -1, dtype=torch.int32, device=device)
    accept_index = torch.full((bs, inputs.tree.max_depth + 1), -1, dtype=torch.int32, device=device)
    accept_count = torch.zeros(bs, dtype=torch.int32, device=device)
    sgl_kernel.tree_speculative_sampling_target_only(
        predicts=predict,
        accept_index=accept_index,
        accept_token_num=accept_count,
        candidates=inputs.tree.tokens,
        retrive_index=inputs.tables.index,
        retrive_next_token=inputs.tables.next_token,
        retrive_next_sibling=inputs.tables.next_sibling,
        uniform_samples=inputs.coins,
        uniform_samples_for_final_sampling=inputs.final_coins,
        target_probs=probs,
        draft_probs=torch.zeros_like(probs),
        threshold_single=1.0,
        threshold_acc=1.0,
    )
    return accept_index
