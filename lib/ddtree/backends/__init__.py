"""Backends of the sampling verify: the same law, and the same tokens for the same coins, away from ties."""
