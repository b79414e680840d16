"""Tree attention under Triton's interpreter against a float64 softmax."""

import torch
import triton_on_cpu  # noqa: F401  before Triton
from attention_cases import a_case, right

SHAPES = [
    ([1], 3, 2, 1, 16),  # a prefix of one token
    ([5, 130, 64], 9, 9, 3, 64),  # one part of the prefix and several, full and not
    ([0, 40], 17, 4, 4, 24),  # no prefix; a size that is no power of two; heads that share no keys
    ([70, 3], 40, 6, 2, 32),  # nodes over two tiles
    ([1100], 5, 8, 1, 128),  # more tokens than parts of 64
]
for seed, (lengths, most_nodes, heads, kv_heads, size) in enumerate(SHAPES):
    case = a_case(seed, lengths, most_nodes=most_nodes, heads=heads, kv_heads=kv_heads, size=size)
    torch.testing.assert_close(case.answer().double(), right(case), atol=2e-5, rtol=2e-5)
print(f"equal in {len(SHAPES)} shapes")
