"""Tables of a sweep for reading: what became of its cells, and every point with its intervals."""

from __future__ import annotations

import pandas as pd
from pandas.io.formats.style import Styler

from ddtree.workbook.sweep.results import STATUSES, Sweep
from ddtree.workbook.sweep.slices import ONLY
from ddtree.workbook.tables import plain


def cells_table(sweep: Sweep) -> Styler:
    """Cells by status: how many, and which and why where something went wrong."""
    rows = []
    for status in STATUSES:
        mine = [cell for cell in sweep.cells if cell.status == status]
        if status in ("measured", "not run"):
            rows += [{"status": status, "cells": len(mine), "which": "", "why": ""}] if mine else []
        else:
            rows += [{"status": status, "cells": 1, "which": cell.id, "why": cell.reason} for cell in mine]
    return plain(pd.DataFrame(rows))


def points_table(points: pd.DataFrame) -> Styler:
    """Speed, speed-up, tokens and milliseconds per round of every point, with 95 % intervals and counts."""
    shown = {
        "setting": points["slice"],
        "T": points["temperature"].map("{:g}".format),
        "decoder": points["label"],
        "tokens/s": _interval(points, "tokens_per_s", ".1f"),
        "speed-up": _interval(points, "speedup", ".2f"),
        "tokens per round": _interval(points, "acceptance", ".2f"),
        "ms per round": _interval(points, "round_ms", ".1f"),
        "prompts": points["prompts"],
        "rounds": points["rounds"],
    }
    frame = pd.DataFrame(shown)
    return plain(frame.drop(columns="setting") if set(points["slice"]) == {ONLY} else frame)


def _interval(points: pd.DataFrame, name: str, form: str) -> list[str]:
    columns = (points[name], points[f"{name}_lo"], points[f"{name}_hi"])
    return [f"{value:{form}} ({low:{form}} to {high:{form}})" for value, low, high in zip(*columns, strict=True)]
