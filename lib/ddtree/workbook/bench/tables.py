"""The measured numbers as tables for reading, intervals beside the values."""

from __future__ import annotations

import pandas as pd
from pandas.io.formats.style import Styler

from ddtree.workbook.tables import plain


def verify_table(verify: pd.DataFrame) -> Styler:
    """Each pipeline at each size: its time, its ratio to ours, and how many times its floor it takes."""
    shown = verify[["filters", "vocab", "batch", "budget", "pipeline"]].copy()
    shown["µs"] = _with_interval(verify, "us", "{:,.0f}")
    shown["over ours"] = _with_interval(verify, "over_ours", "{:.2f}")
    shown["floors"] = (verify["us"] / verify["floor_us"]).map("{:,.0f}".format)
    return plain(shown)


def attention_table(attention: pd.DataFrame) -> Styler:
    """A line for each model, prefix, batch and budget: microseconds of a layer by each kernel, ours in floors too."""
    keys = ["model", "prefix", "batch", "budget"]
    by_kernel = {str(name): part.set_index(keys) for name, part in attention.groupby("attention", sort=False)}
    first, *others = by_kernel
    shown = pd.DataFrame({"ours, µs": by_kernel[first]["us"].map("{:,.1f}".format)})
    for name in others:
        shown[f"{name}, µs"] = by_kernel[name]["us"].map("{:,.1f}".format)
        ratios = _with_interval(by_kernel[name], "over_ours", "{:.2f}")
        shown["over ours"] = pd.Series(ratios, index=by_kernel[name].index)
    shown["floors"] = (by_kernel[first]["us"] / by_kernel[first]["floor_us"]).map("{:,.1f}".format)
    return plain(shown.reset_index())


def rounds_table(rounds: pd.DataFrame) -> Styler:
    """Milliseconds of each stage and the share of overhead, a line for each model, batch and budget."""
    keys = ["model", "batch", "budget"]
    wide = rounds.pivot(index=keys, columns="stage", values="us") / 1e3
    share = rounds[rounds["stage"] == "overhead"].set_index(keys)
    stages = [name for name in rounds["stage"].unique() if name != "overhead"]
    shown = wide[stages].assign(outside=pd.Series(_with_interval(share, "share", "{:.1%}"), index=share.index))
    return plain(shown.rename(columns={"outside": "outside the forwards", "round": "round, ms"}).reset_index())


def chain_table(chain: pd.DataFrame) -> Styler:
    """Tokens per second of each method, and its ratio to `dflash_generate` where that ran."""
    shown = chain[["model", "temperature", "method"]].copy()
    shown["tokens/s"] = _with_interval(chain, "tokens_per_s", "{:.1f}")
    shown["over dflash_generate"] = _with_interval(chain, "over_peer", "{:.2f}")
    shown["tokens"] = chain["tokens"]
    return plain(shown)


def _with_interval(frame: pd.DataFrame, name: str, form: str) -> list[str]:
    """ "1.2 (1.1 to 1.3)", "" where there is no value."""
    columns = (frame[name], frame[f"{name}_lo"], frame[f"{name}_hi"])
    return [
        "" if pd.isna(value) else f"{form.format(value)} ({form.format(low)} to {form.format(high)})"
        for value, low, high in zip(*columns, strict=True)
    ]
