"""Show the benchmark's numbers as tables, with intervals next to the values."""

from __future__ import annotations

import pandas as pd
from pandas.io.formats.style import Styler

from ddtree.workbook.tables import plain


def verify_table(verify: pd.DataFrame) -> Styler:
    """Each pipeline at each size: its time, its ratio to ours, and how many times its roofline bound it takes."""
    shown = verify[["filters", "vocab", "batch", "budget", "pipeline"]].copy()
    shown["µs"] = interval_texts(verify, "us", "{:,.0f}")
    shown["over ours"] = interval_texts(verify, "over_ours", "{:.2f}")
    shown["over bound"] = (verify["us"] / verify["floor_us"]).map("{:,.0f}".format)
    return plain(shown)


def attention_table(attention: pd.DataFrame) -> Styler:
    """A row for each model, prefix, batch and budget: microseconds of a layer by each kernel, ours over its bound."""
    keys = ["model", "prefix", "batch", "budget"]
    by_kernel = {str(name): part.set_index(keys) for name, part in attention.groupby("attention", sort=False)}
    first, *others = by_kernel
    shown = pd.DataFrame({"ours, µs": by_kernel[first]["us"].map("{:,.1f}".format)})
    for name in others:
        shown[f"{name}, µs"] = by_kernel[name]["us"].map("{:,.1f}".format)
        shown["over ours"] = interval_texts(by_kernel[name], "over_ours", "{:.2f}")
    shown["over bound"] = (by_kernel[first]["us"] / by_kernel[first]["floor_us"]).map("{:,.1f}".format)
    return plain(shown.reset_index())


def rounds_table(rounds: pd.DataFrame) -> Styler:
    """Milliseconds of each stage and the share of overhead, a row for each model, batch and budget."""
    keys = ["model", "batch", "budget"]
    stages = [name for name in rounds["stage"].unique() if name != "overhead"]
    shown = rounds.pivot(index=keys, columns="stage", values="us")[stages] / 1e3
    overhead = rounds[rounds["stage"] == "overhead"].set_index(keys)
    shown["outside the forwards"] = interval_texts(overhead, "share", "{:.1%}")
    return plain(shown.rename(columns={"round": "round, ms"}).reset_index())


def calls_table(calls: pd.DataFrame) -> Styler:
    """Tokens per second of each method, and its ratio to `dflash_generate` where that ran."""
    shown = calls[["model", "temperature", "method"]].copy()
    shown["tokens/s"] = interval_texts(calls, "tokens_per_s", "{:.1f}")
    shown["over dflash_generate"] = interval_texts(calls, "over_peer", "{:.2f}")
    return plain(shown.assign(tokens=calls["tokens"]))


def interval_texts(frame: pd.DataFrame, name: str, form: str) -> pd.Series:
    """ "1.2 (1.1 to 1.3)" for NAME, NAME_lo and NAME_hi of each row, "" where there is no value."""
    columns = (frame[name], frame[f"{name}_lo"], frame[f"{name}_hi"])
    texts = [
        "" if pd.isna(value) else f"{form.format(value)} ({form.format(low)} to {form.format(high)})"
        for value, low, high in zip(*columns, strict=True)
    ]
    return pd.Series(texts, index=frame.index, dtype=object)
