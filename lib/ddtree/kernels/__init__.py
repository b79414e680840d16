"""The tree in five Triton kernels: three from the draft's logits to its nodes, one for its links, one for its mask.

`launch` is what Python calls; `survey` and `favourites` (in `favourites`), `grow` (in `growth`), `link` (in `linking`)
and `paint` (in `masking`) are the kernels. The vocabulary is read once.
"""

from ddtree.kernels.launch import MASKS, MOST_NODES, fits, holds, likeliest, links, mask, missing, prefixes, run_on

__all__ = ["MASKS", "MOST_NODES", "fits", "holds", "likeliest", "links", "mask", "missing", "prefixes", "run_on"]
