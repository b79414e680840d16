"""One torch thread and named hypothesis profiles, so that a run means the same on every machine."""

import os

import torch
from hypothesis import settings

torch.set_num_threads(1)

settings.register_profile("dev", deadline=None, max_examples=60)
settings.register_profile("ci", deadline=None, max_examples=120, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")
