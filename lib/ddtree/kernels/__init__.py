"""Triton kernels and their callers: one round of the tree algorithm in six kernels, a served round, tree attention.

`ops` launches the kernels of `tree_kernels` (top-k, selection, links, mask, accepted path) and chooses between them and
torch; `round_ops` and `tree_attention` serve the SGLang plugin. The vocabulary is read once.
"""

from ddtree.kernels.ops import (
    MASK_DTYPES,
    MAX_NODES,
    choose,
    fits_selection,
    fits_topk,
    link_nodes,
    map_accepted,
    run_on,
    select_nodes,
    topk_tokens,
    tree_mask,
    unavailable_reason,
)

__all__ = [
    "MASK_DTYPES",
    "MAX_NODES",
    "choose",
    "fits_selection",
    "fits_topk",
    "link_nodes",
    "map_accepted",
    "run_on",
    "select_nodes",
    "topk_tokens",
    "tree_mask",
    "unavailable_reason",
]
