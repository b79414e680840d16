"""The kernels of coins and mask under Triton's interpreter against the same in torch operations."""

import numpy as np
import torch
import triton_on_cpu  # noqa: F401  before Triton
from ddtree.kernels.round_ops import (
    coins_on_device,
    mask_cells,
    write_tree_mask,
    write_tree_mask_on_device,
)
from ddtree.retrieve import tree_visibility
from ddtree.sampling import step_coins
from oracles import random_trees

rng = torch.Generator().manual_seed(1)
seeds = torch.cat([torch.tensor([0, -1, 2**63 - 1, -(2**63)]), torch.randint(-(2**62), 2**62, (5,), generator=rng)])
prefix = torch.tensor([0, 1, 7, 5000, 3, 2**31, 12, 99, 1])
with np.errstate(over="ignore"):
    for width in (1, 2, 17, 65):
        found_coins = coins_on_device(seeds, prefix, width)
        for found, right in zip(found_coins, step_coins(seeds.tolist(), prefix.tolist(), width), strict=True):
            assert torch.equal(found, right), width

for batch, most in ((1, 2), (7, 9), (5, 20)):
    tree = random_trees(np.random.default_rng(batch), batch, most_nodes=most, vocab=50, spare=2)
    lengths = torch.randint(1, 40, (batch,), generator=rng)
    visible = tree_visibility(tree)
    cells = mask_cells(int(lengths.sum()), batch, tree.width)
    buffers = [torch.full((cells + 5,), 9, dtype=torch.uint8) for _ in range(2)]
    write_tree_mask(buffers[0], visible, lengths)
    write_tree_mask_on_device(buffers[1], visible, lengths)
    assert torch.equal(*buffers), batch
print("equal")
