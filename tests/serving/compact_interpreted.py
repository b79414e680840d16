"""The kernel of compaction under Triton's interpreter against a fresh gather."""

import torch
import triton_on_cpu  # noqa: F401  before Triton
from ddtree.kernels.round_ops import compact_on_device
from test_serving_compact import a_round, fresh

for seed in range(4):
    slots, path = a_round(seed, bs=3)
    buffers = [torch.randn(60, 3, 8) for _ in range(3)]
    right = [fresh(buffer, slots, path) for buffer in buffers]
    pointers = torch.tensor([buffer.data_ptr() for buffer in buffers], dtype=torch.uint64)
    compact_on_device(pointers, buffers[0][0].nbytes, slots, path)
    assert all(torch.equal(a, b) for a, b in zip(buffers, right, strict=True)), seed
print("equal in 4 rounds")
