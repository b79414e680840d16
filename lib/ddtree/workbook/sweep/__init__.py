"""Sweeps: one notebook over a grid of parameters, and what the cells say together."""
