"""Servers started, measured side by side and stopped, and what their rows say: the rooms behind 04_serving."""
