"""Benchmark of the stages of a round and of whole rounds, next to what others use for them."""
