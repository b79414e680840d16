"""Tables of the live notebook, styled for reading: units in the headings, intervals beside the values."""

from __future__ import annotations

import pandas as pd
from pandas.io.formats.style import Styler


def summary_table(summary: pd.DataFrame) -> Styler:
    """Speed, speed-up, acceptance and overhead of every setting, with 95 % intervals."""
    shown = pd.DataFrame(
        {
            "T": summary["temperature"].map("{:g}".format),
            "strategy": summary["label"],
            "tokens/s": _with_interval(summary, "tokens_per_s", "{:.1f}"),
            "speed-up": _with_interval(summary, "speedup", "{:.2f}"),
            "tokens per round": _with_interval(summary, "acceptance", "{:.2f}"),
            "overhead": summary["overhead_share"].map("{:.1%}".format),
            "rounds": summary["rounds"],
        }
    )
    return shown.style.hide()


def regression_table(regression: pd.DataFrame) -> Styler:
    """`greedy_regression` with the first difference named where there is one."""
    shown = regression.assign(
        equal=regression["equal"].map({True: "equal", False: "differs"}),
        first_difference=[_or_dash(where, "token {:.0f}") for where in regression["first_difference"]],
        gap_ulp=[_or_dash(gap, "{:.1f} ulp") for gap in regression["gap_ulp"]],
    )
    names = {"equal": "greedy text", "first_difference": "first difference", "gap_ulp": "logit gap there"}
    return shown.rename(columns=names).style.hide()


def _with_interval(summary: pd.DataFrame, name: str, form: str) -> list[str]:
    columns = (summary[name], summary[f"{name}_lo"], summary[f"{name}_hi"])
    return [
        f"{form.format(value)} ({form.format(low)} to {form.format(high)})"
        for value, low, high in zip(*columns, strict=True)
    ]


def _or_dash(value: float | None, form: str) -> str:
    return "–" if value is None or pd.isna(value) else form.format(value)
