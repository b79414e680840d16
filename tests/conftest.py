"""One torch thread and named hypothesis profiles, so that a run means the same on every machine; the real model."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)

settings.register_profile("dev", deadline=None, max_examples=60)
settings.register_profile("ci", deadline=None, max_examples=120, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The folder of SmolLM2-135M, fetched if need be; without it a test is skipped, under CI it fails."""
    from ddtree.models.zoo import fetch  # a GPU machine may hold only what the kernels need

    try:
        return fetch("smollm2-135m")
    except (RuntimeError, OSError) as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"SmolLM2-135M is not in the cache and cannot be fetched: {error}")
