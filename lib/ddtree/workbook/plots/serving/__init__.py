"""Figures of 04_serving: tokens a second, speed-up against step cost, acceptance, and where a round's time goes."""
