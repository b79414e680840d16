"""The slices of a sweep: cells that differ in temperature, budget and seed alone, named by what sets them apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

WITHIN = {"temperatures", "budget", "extra_budgets", "seed", "out_dir"}  # may differ inside a slice
SHORT = {"topk_cap": "top-k cap", "draft_temperature": "draft T"}
LONGEST = 24  # characters of a value that a name can hold
ONLY = "every run"  # the name of the only slice


def slice_names(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """One name for each cell's parameters, equal for cells of one slice: "top-k cap 4, draft T match"."""
    names = dict.fromkeys(name for params in cells for name in params if name not in WITHIN)
    values = {name: _distinct([params.get(name) for params in cells]) for name in names}
    apart = [name for name in names if len(values[name]) > 1]
    return [", ".join(_said(name, params.get(name), values[name]) for name in apart) or ONLY for params in cells]


def _distinct(values: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def _said(name: str, value: Any, values: list[Any]) -> str:
    text = f"{value:g}" if isinstance(value, int | float) else str(value)
    short = text if len(text) <= LONGEST else f"no. {values.index(value) + 1}"
    return f"{SHORT.get(name, name)} {short}"
