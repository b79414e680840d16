"""Figures of 07_speed: what stages, builders, verify pipelines, rounds and whole calls cost, beside their peers."""
