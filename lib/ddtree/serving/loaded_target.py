"""What DDTREE needs of a loaded target: a head to draft with, KV rows that can be moved, graphs of its width.

Invariant: a target that lacks one is refused with a sentence, before the server answers anybody.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
from torch import Tensor


def head_of(model: Any) -> Tensor:
    """[V, hidden], the output embedding. Raises ValueError for one that is absent, quantised, split or added to."""
    head = getattr(model, "lm_head", None)
    weight = getattr(head, "weight", None)
    if weight is None or not torch.is_floating_point(weight):
        raise ValueError("DDTREE drafts with the target's lm_head, which must be there and not be quantised.")
    shard = getattr(head, "shard_indices", None)
    if shard is None:
        return weight
    if int(shard.num_added_elements) or int(shard.org_vocab_start_index):
        raise ValueError("DDTREE does not serve a target whose lm_head has added tokens or is split.")
    return weight[: int(shard.num_org_elements)]


def row_bytes_of(runner: Any) -> int:
    """Bytes of a token's keys, or values, in one layer. Raises ValueError for a cache whose rows cannot be moved."""
    if runner.sliding_window_size is not None:
        raise ValueError("DDTREE does not serve a target with a sliding window.")
    pool = runner.token_to_kv_pool
    if type(pool) is not MHATokenToKVPool or pool.use_hnd:
        layout = " in HND layout" if getattr(pool, "use_hnd", False) else ""
        raise ValueError(
            f"DDTREE moves rows of an MHATokenToKVPool in NHD layout; the target's is {type(pool).__name__}{layout}."
        )
    row_bytes = int(pool.k_buffer[0][0].nbytes)
    if any(int(buffer[0].nbytes) != row_bytes for buffer in (*pool.k_buffer, *pool.v_buffer)):
        raise ValueError("DDTREE moves KV rows of one size; this target's keys and values differ.")
    return row_bytes


def require_width(what: str, runner: Any, width: int) -> None:
    """Raises RuntimeError for graphs of another width; a runner that captured nothing has none."""
    found = getattr(runner, "captured_req_width", width)
    if found != width:
        raise RuntimeError(f"the {what} are {found} tokens a request wide; they must be {width}.")
