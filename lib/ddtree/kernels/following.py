# mypy: disallow-untyped-defs=False
"""What a round keeps: the flat accept index of a request mapped back to its nodes, and the tokens along it."""

import triton
import triton.language as tl

SMALL = ("predict", "accept_index", "accept_count", "prefix_len", "path", "tokens", "per_request")
UNSPECIAL = ("batch", "q", "length")


@triton.jit(do_not_specialize=UNSPECIAL, do_not_specialize_on_alignment=SMALL)
def follow(
    predict, accept_index, accept_count, prefix_len, path, tokens, per_request, batch, q, length, DEPTHS: tl.constexpr
):
    """One request's row of `path` and `tokens` [batch, length]; of `per_request` [3, batch] its column: the path's
    length, the final token and the prefix's new length."""
    request = tl.program_id(0)
    first = request.to(tl.int64) * length
    depth = tl.arange(0, DEPTHS)
    here = depth < length
    flat = tl.load(accept_index + first + depth, mask=here, other=-1)
    kept = flat >= 0
    after = tl.load(predict + flat, mask=kept, other=-1).to(tl.int64)
    tl.store(path + first + depth, tl.where(kept, flat - request * q, -1).to(tl.int64), mask=here)
    tl.store(tokens + first + depth, after, mask=here)
    count = tl.load(accept_count + request).to(tl.int64)
    tl.store(per_request + request, count + 1)
    tl.store(per_request + batch + request, tl.sum(tl.where(depth == count, after, 0)))
    tl.store(per_request + 2 * batch + request, tl.load(prefix_len + request).to(tl.int64) + count + 1)
