"""The tree builder in three Triton kernels, from the draft's logits to a tree: the vocabulary is read once.

`launch` is what Python calls; `survey` and `favourites` (in `favourites`) and `grow` (in `growth`) are the kernels.
"""

from ddtree.kernels.launch import fits, holds, likeliest, missing, prefixes

__all__ = ["fits", "holds", "likeliest", "missing", "prefixes"]
