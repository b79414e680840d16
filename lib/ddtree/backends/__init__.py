"""Backends of the sampling verify: the same distribution, and the same tokens for the same coins, away from ties."""

from typing import Literal, get_args

BackendName = Literal["fused", "sgl", "reference"]
BACKENDS: tuple[BackendName, ...] = get_args(BackendName)  # best first; "auto" takes the first that passes its test
