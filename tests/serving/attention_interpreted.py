"""Tree attention under Triton's interpreter against a float64 softmax, with a control and a row that sees nothing."""

from unittest import mock

import torch
import triton_on_cpu  # noqa: F401  before Triton
from attention_cases import a_case, right
from ddtree.kernels import tree_attention

SHAPES = [
    ([1], 3, 2, 1, 16),  # a prefix of one token
    ([5, 130, 64], 9, 9, 3, 64),  # parts of the prefix that are full and not
    ([0, 40], 17, 4, 4, 24),  # no prefix; a size that is no power of two; heads that share no keys
    ([70, 3], 40, 6, 2, 32),  # nodes over two tiles
    ([1100], 5, 8, 1, 128),  # more tokens than parts of the least length
]
for seed, (lengths, most_nodes, heads, kv_heads, size) in enumerate(SHAPES):
    case = a_case(seed, lengths, most_nodes=most_nodes, heads=heads, kv_heads=kv_heads, size=size)
    for programs in (1, tree_attention.PROGRAMS):  # two parts, as of a large batch, and as many as so small a one has
        with mock.patch.object(tree_attention, "PROGRAMS", programs):
            torch.testing.assert_close(case.answer().double(), right(case), atol=2e-5, rtol=2e-5)

case = a_case(7, [0, 6], most_nodes=6, heads=4, kv_heads=2, size=16)
nodes, mask = case.visible.shape[1], case.sight[0]
own = right(case)
mask[0] = 0  # the first request's root, of which there is no prefix, no longer sees itself
assert (case.answer()[0] == 0).all(), "a row that sees nothing is no NaN"
torch.testing.assert_close(case.answer()[1:].double(), own[1:], atol=2e-5, rtol=2e-5)
start = int(case.sight[1][1])  # the second request's root: six tokens of its prefix, then itself
mask[start + 6 + nodes + 6] = 0  # its first child no longer sees it
moved = (case.answer().double() - own).abs().amax(dim=(1, 2)) > 1e-3
assert moved.nonzero()[:, 0].tolist() == [0, nodes + 1], "a control: the mask is read, cell by cell"
print(f"equal in {len(SHAPES)} shapes, in few parts and many")
