"""Tests that sampled tokens follow the exact target distribution, with wrong rules that must be rejected."""
