"""A slow stand-in for sgl_kernel: the op's semantics as measured on an H200, its traps included.

It accepts on `coin <= sum` (so a child of probability 0 at a coin of 0), emits id V-1 when nothing is left, writes
only the slots it visits, and marks rejected children in `draft_probs`.
"""

import torch
from torch import Tensor


def tree_speculative_sampling_target_only(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    uniform_samples: Tensor,
    uniform_samples_for_final_sampling: Tensor,
    target_probs: Tensor,
    draft_probs: Tensor,
    threshold_single: float = 1.0,
    threshold_acc: float = 1.0,
    deterministic: bool = True,
) -> None:
    """Fill the first three arguments in place."""
    long_ones = (candidates, retrive_index, retrive_next_token, retrive_next_sibling)
    int_ones = (predicts, accept_index, accept_token_num)
    float_ones = (uniform_samples, uniform_samples_for_final_sampling, target_probs, draft_probs)
    for tensors, dtype in ((long_ones, torch.int64), (int_ones, torch.int32), (float_ones, torch.float32)):
        for tensor in tensors:
            if tensor.dtype != dtype or not tensor.is_contiguous():
                raise RuntimeError(f"the op wants contiguous {dtype}, found {tensor.dtype}")
    if draft_probs.any():
        raise AssertionError("draft_probs must be all zero at every call")
    bs = candidates.shape[0]
    if bs == 0:
        raise AssertionError("an empty batch is not guarded")
    vocab = target_probs.shape[-1]
    for b in range(bs):
        node, slots = 0, accept_index.shape[1]
        accept_index[b, 0] = retrive_index[b, 0]
        accepted = 0
        for _ in range(1, slots):
            child = int(retrive_next_token[b, node])
            running = torch.tensor(0.0)
            while child != -1:
                token = int(candidates[b, child])
                prob = target_probs[b, node, token]
                running = running + prob
                if uniform_samples[b, node] <= running / threshold_acc or prob >= threshold_single:
                    break
                draft_probs[b, node, token] = prob
                child = int(retrive_next_sibling[b, child])
            if child == -1:
                break
            predicts[retrive_index[b, node]] = token
            accepted += 1
            accept_index[b, accepted] = retrive_index[b, child]
            node = child
        accept_token_num[b] = accepted
        left = (target_probs[b, node] - draft_probs[b, node]).clamp(min=0)
        beyond = (left.cumsum(0) > left.sum() * uniform_samples_for_final_sampling[b]).nonzero()
        predicts[retrive_index[b, node]] = int(beyond[0]) if len(beyond) else vocab - 1
