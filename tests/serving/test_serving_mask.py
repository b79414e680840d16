"""The mask in the buffer, read back as the attention kernel reads it, against the library's own visibility."""

import numpy as np
import torch
from ddtree.kernels.round_ops import mask_cells, write_tree_mask
from ddtree.retrieve import tree_visibility
from oracles import random_trees


def test_every_request_reads_its_own_tree() -> None:
    rng = np.random.default_rng(5)
    tree = random_trees(rng, 7, most_nodes=9, vocab=20, spare=2)
    prefix = torch.tensor([3, 1, 40, 7, 7, 1, 12])
    q = tree.width
    buffer = torch.full((mask_cells(int(prefix.sum()), 7, q) + 5,), 9, dtype=torch.uint8)
    visible = tree_visibility(tree)
    write_tree_mask(buffer, visible, prefix)
    start = 0
    for b, length in enumerate(prefix.tolist()):
        rows = buffer[start : start + q * (length + q)].view(q, length + q)
        assert torch.equal(rows[:, length:].bool(), visible[b])
        assert bool((rows[:, :length] == 9).all()), "the kernel never reads the prefix's cells, nobody writes them"
        start += rows.numel()
    assert start == mask_cells(int(prefix.sum()), 7, q)
    assert buffer[start:].tolist() == [9] * 5
