"""A tree of the root alone: the walk over it draws one token, which is how the first of a request is drawn."""

from __future__ import annotations

from functools import lru_cache

import torch

from ddtree.draft_tree import DraftTree
from ddtree.retrieve import RetrieveTables, compile_retrieve


@lru_cache(maxsize=64)
def root_alone(batch_size: int, device: torch.device) -> tuple[DraftTree, RetrieveTables]:
    """Of any batch: nothing of the root is read but that it has no children."""
    tree = DraftTree.from_parents([[0]] * batch_size, [[-1]] * batch_size, [[0.0]] * batch_size).to(device)
    return tree, compile_retrieve(tree)
