"""Formats the exactness suite as tables; each line shows the weakest of the settings that it stands for."""

from __future__ import annotations

import pandas as pd
from pandas.io.formats.style import Styler

from ddtree.workbook.exactness.suite import DISTRIBUTIONS, SuiteResult
from ddtree.workbook.tables import plain, with_interval


def distributions_table(result: SuiteResult) -> Styler:
    """The shipped rule by distribution and temperature: smallest p, worst total variation, smallest departure found."""
    shown = [
        {
            "distribution": name,
            "T": f"{temperature:g}",
            "settings": len(part),
            "draws": _span(part["draws"]),
            "cells": _span(part["cells"]),
            "smallest p": _p(part["p"].min()),
            "after Holm": _p(part["p_holm"].min()),
            "worst total variation": with_interval(part.sort_values("tv").tail(1), "tv", ".4f")[0],
            "smallest found": f"{part['smallest_found'].max():.4f}",
        }
        for name in DISTRIBUTIONS
        for temperature, part in result.shipped[result.shipped["law"] == name].groupby("temperature")
    ]
    return plain(pd.DataFrame(shown))


def negative_controls_table(result: SuiteResult) -> Styler:
    """The rules that are wrong on purpose, each by the test that rejects it most clearly."""
    controls = result.negative_controls
    shown = {
        "negative control": controls["rule"],
        "distribution": controls["law"],
        "draws": controls["draws"].map("{:,}".format),
        "impossible": controls["impossible"].map("{:,}".format),
        "p after Holm": controls["p_holm"].map(_p),
        "total variation": with_interval(controls, "tv", ".4f"),
        "": controls["rejected"].map({True: "rejected", False: "NOT rejected"}),
    }
    return plain(pd.DataFrame(shown))


def _span(values: pd.Series) -> str:
    low, high = values.min(), values.max()
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else "0" if value == 0 else f"{value:.0e}"
