"""The whole verify in one Triton kernel, from logits to tokens: no probability tensor, only visited rows are read."""

from ddtree.backends.fused.launch import (
    READ,
    STOCK,
    SamplingTensors,
    Sizes,
    interpreted,
    missing,
    sample,
    sample_requests,
    verify,
)

__all__ = ["READ", "STOCK", "SamplingTensors", "Sizes", "interpreted", "missing", "sample", "sample_requests", "verify"]
