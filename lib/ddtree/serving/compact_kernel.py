# mypy: disallow-untyped-defs=False
"""The kernel of `compact_on_device`: one program moves one request's path in one buffer, row after row."""

import triton
import triton.language as tl

UNSPECIAL = ("words", "q", "length")
SMALL = ("pointers", "slots", "path")


@triton.jit(do_not_specialize=UNSPECIAL, do_not_specialize_on_alignment=SMALL)
def move_path(pointers, slots, path, words, q, length, TILE: tl.constexpr):
    buffer = tl.load(pointers + tl.program_id(0)).to(tl.pointer_type(tl.int64))
    slots += tl.program_id(1).to(tl.int64) * q
    path += tl.program_id(1).to(tl.int64) * length
    for first in range(0, words, TILE):
        word = first + tl.arange(0, TILE)
        inside = word < words
        for k in range(1, length):
            node = tl.load(path + k)
            if node > k:
                source = tl.load(slots + node) * words
                target = tl.load(slots + k) * words
                row = tl.load(buffer + source + word, mask=inside)
                tl.store(buffer + target + word, row, mask=inside)
                tl.debug_barrier()  # a later row may come to where this one was
