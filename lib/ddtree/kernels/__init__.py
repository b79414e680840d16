"""A round in six Triton kernels: three from the draft's logits to nodes, one each for links, mask and accepted path.

`launch` is what Python calls; `survey` and `favourites` (in `favourites`), `grow` (in `growth`), `link` (in `linking`),
`paint` (in `masking`) and `follow` (in `following`) are the kernels. The vocabulary is read once.
"""

from ddtree.kernels.ops import (
    MASKS,
    MOST_NODES,
    choose,
    fits,
    holds,
    kept,
    likeliest,
    links,
    mask,
    missing,
    prefixes,
    run_on,
)

__all__ = [
    "MASKS",
    "MOST_NODES",
    "choose",
    "fits",
    "holds",
    "kept",
    "likeliest",
    "links",
    "mask",
    "missing",
    "prefixes",
    "run_on",
]
