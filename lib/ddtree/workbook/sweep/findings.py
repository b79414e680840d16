"""What a sweep found, for result.json and in plain sentences: one mapping for each setting."""

from __future__ import annotations

import dataclasses
from typing import Any

from ddtree.workbook.records import rows_of
from ddtree.workbook.sweep.best import say_auto, say_best
from ddtree.workbook.sweep.results import STATUSES
from ddtree.workbook.sweep.slowdown import explain
from ddtree.workbook.sweep.view import SweepView

NOTHING_TO_SPLIT = "No decoder was measured at two temperatures, so no slow-down can be explained."


def findings(view: SweepView) -> dict[str, Any]:
    """Progress, the cells that are missing and why, and by setting: points, best budgets, slow-down, entropy."""
    cells = view.sweep.cells
    return {
        "progress": view.sweep.progress,
        "cells": {status: sum(cell.status == status for cell in cells) for status in STATUSES},
        "missing": {cell.id: cell.reason for cell in cells if cell.reason},
        "settings": {setting: _of_setting(view, setting) for setting in view.settings},
    }


def answer(view: SweepView, setting: str) -> str:
    """Why the highest temperature is slower than the lowest, for the reference decoder, in plain words."""
    split = view.slowdown(setting)
    rows = {row["label"]: row for row in split.to_dict("records")}
    row = rows.get(view.reference(setting))
    if row is None:
        return NOTHING_TO_SPLIT
    control = rows.get("autoregressive")
    said = (
        f" Autoregressive decoding in the same runs: factor {control['speed']:.2f} "
        f"({control['speed_lo']:.2f} to {control['speed_hi']:.2f})."
        if control
        else ""
    )
    return f"{explain(row)}{said}"


def _of_setting(view: SweepView, setting: str) -> dict[str, Any]:
    decoder = view.reference(setting)
    budgets = view.budgets(setting)
    beyond = view.beyond(setting, decoder)
    temperatures: list[float] = list(budgets["temperature"].unique()) if len(budgets) else []
    return {
        "reference": decoder,
        "points": rows_of(view.points[view.points["slice"] == setting].drop(columns="slice")),
        "best_budget": {f"{t:g}": say_best(budgets, t) for t in temperatures},
        "auto": {f"{t:g}": said for t in temperatures if (said := say_auto(budgets, t))},
        "budgets": rows_of(budgets),
        "slowdown": answer(view, setting),
        "slowdown_parts": rows_of(view.slowdown(setting)),
        "beyond_entropy": dataclasses.asdict(beyond) | {"sentence": beyond.explain()} if beyond else None,
    }
