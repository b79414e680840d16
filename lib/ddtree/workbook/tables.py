"""Format tables for reading: no index, few digits, intervals next to the values, in the report's style."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from pandas.io.formats.style import Styler


def plain(frame: pd.DataFrame, *, digits: int = 3) -> Styler:
    """The frame itself: floats with `digits` decimals, missing values blank, texts to the left."""
    texts = [name for name in frame if not pd.api.types.is_numeric_dtype(frame[name])]
    left = "text-align: left"
    styler = frame.style.hide().format(precision=digits, na_rep="").set_table_attributes('class="dataframe"')
    return styler.set_table_styles({name: [{"selector": "th, td", "props": left}] for name in texts})


def facts(values: Mapping[str, object]) -> Styler:
    """Names and values, one a row."""
    return plain(pd.DataFrame({"name": list(values), "value": [str(value) for value in values.values()]}))


def with_interval(frame: pd.DataFrame, name: str, form: str) -> list[str]:
    """The column `name` with its _lo and _hi, each in the format `form`: "2.31 (2.02 to 2.60)"."""
    bounds = (frame[name], frame[f"{name}_lo"], frame[f"{name}_hi"])
    return [f"{value:{form}} ({low:{form}} to {high:{form}})" for value, low, high in zip(*bounds, strict=True)]


def summary_table(summary: pd.DataFrame) -> Styler:
    """Speed, speed-up, acceptance and overhead of every setting, with 95 % intervals."""
    shown = pd.DataFrame(
        {
            "T": summary["temperature"].map("{:g}".format),
            "strategy": summary["label"],
            "tokens/s": with_interval(summary, "tokens_per_s", ".1f"),
            "speed-up": with_interval(summary, "speedup", ".2f"),
            "tokens per round": with_interval(summary, "acceptance", ".2f"),
            "overhead": summary["overhead_share"].map("{:.1%}".format),
            "rounds": summary["rounds"],
        }
    )
    return plain(shown)


def regression_table(regression: pd.DataFrame) -> Styler:
    """`greedy_regression` with the first difference named where there is one."""
    shown = regression.assign(
        equal=regression["equal"].map({True: "equal", False: "differs"}),
        first_difference=[_or_dash(where, "token {:.0f}") for where in regression["first_difference"]],
        gap_ulp=[_or_dash(gap, "{:.1f} ulp") for gap in regression["gap_ulp"]],
    )
    names = {"equal": "greedy text", "first_difference": "first difference", "gap_ulp": "logit gap there"}
    return plain(shown.rename(columns=names))


def _or_dash(value: float | None, form: str) -> str:
    return "–" if value is None or pd.isna(value) else form.format(value)
