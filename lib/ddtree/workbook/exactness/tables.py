"""A proof as tables for reading: each line the weakest of the settings that it stands for."""

from __future__ import annotations

import pandas as pd
from pandas.io.formats.style import Styler

from ddtree.workbook.exactness.suite import LAWS, Proof
from ddtree.workbook.tables import plain


def laws_table(proof: Proof) -> Styler:
    """The rule that ships, a line for each law and temperature: least p, worst total variation, what would be found."""
    shown = []
    for law in LAWS:
        for temperature, part in proof.ours[proof.ours["law"] == law].groupby("temperature"):
            worst = part.sort_values("tv").iloc[-1]
            shown.append(
                {
                    "law": law,
                    "T": f"{temperature:g}",
                    "settings": len(part),
                    "draws": _span(part["draws"]),
                    "cells": _span(part["cells"]),
                    "least p": _p(part["p"].min()),
                    "after Holm": _p(part["p_holm"].min()),
                    "worst total variation": _with_interval(worst),
                    "smallest found": f"{part['smallest_found'].max():.4f}",
                }
            )
    return plain(pd.DataFrame(shown))


def controls_table(proof: Proof) -> Styler:
    """The rules that are wrong on purpose, by the test that rejects them most clearly."""
    shown = [
        {
            "control": row["rule"],
            "law": row["law"],
            "draws": f"{row['draws']:,}",
            "impossible": f"{row['impossible']:,}",
            "p after Holm": _p(row["p_holm"]),
            "total variation": _with_interval(row),
            "": "rejected" if row["rejected"] else "NOT rejected",
        }
        for _, row in proof.controls.iterrows()
    ]
    return plain(pd.DataFrame(shown))


def _span(values: pd.Series) -> str:
    low, high = values.min(), values.max()
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else "0" if value == 0 else f"{value:.0e}"


def _with_interval(row: pd.Series) -> str:
    return f"{row['tv']:.4f} ({row['tv_lo']:.4f} to {row['tv_hi']:.4f})"
