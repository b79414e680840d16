"""Summarises a live run, one row per setting with intervals over prompts, and writes its result.json."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from ddtree.decode import FORWARDS, STAGES
from ddtree.workbook.live.measure import SETTING, Measurements
from ddtree.workbook.live.record import close_record
from ddtree.workbook.notebook_run import NotebookRun
from ddtree.workbook.records import write_traces
from ddtree.workbook.stats import columns, ratio_of_ratios, ratio_of_sums, resampled_prompts


class IncompleteRun(RuntimeError):  # noqa: N818 (a report shows this name, and the program has no defect)
    """Some prompts were not measured; result.json holds those that were."""


def summarise(measured: Measurements, *, resamples: int, seed: int) -> pd.DataFrame:
    """One row per setting: speed, speed-up over autoregressive, mean acceptance length, with 95 % intervals.

    Times are decode times without prefill. Intervals resample prompts, the same ones for both sides of a speed-up.
    `overhead_share` is the part of a round spent outside the two model forwards.
    """
    per_prompt = measured.generations.groupby([*SETTING, "prompt"])[["tokens", "rounds", "decode_ms"]].sum()
    weights = resampled_prompts(measured.generations["prompt"].nunique(), resamples, seed)
    overhead = _overhead_shares(measured.rounds)
    groups: dict[Any, pd.DataFrame] = dict(list(per_prompt.groupby(SETTING)))
    rows = []
    for setting, own in groups.items():
        base = groups[(setting[0], "autoregressive", "autoregressive", 0)]
        tokens, seconds, base_seconds = own["tokens"], own["decode_ms"] / 1e3, base["decode_ms"] / 1e3
        rows.append(
            dict(zip(SETTING, setting, strict=True))
            | columns("tokens_per_s", ratio_of_sums(tokens, seconds, weights))
            | columns("speedup", ratio_of_ratios(tokens, seconds, base["tokens"], base_seconds, weights))
            | columns("acceptance", ratio_of_sums(tokens, own["rounds"], weights))
            | {"overhead_share": overhead[setting], "rounds": own["rounds"].sum(), "tokens": tokens.sum()}
        )
    in_order = ["temperature", "strategy", "budget"]  # strategies: the alphabet's order is the reading order
    return pd.DataFrame(rows).sort_values(in_order, ignore_index=True)


def metrics_of(summary: pd.DataFrame) -> dict[str, object]:
    """The entries of result.json: speed-up and overhead by temperature and label, and the best tree."""
    speedup, overhead, best = {}, {}, {}
    for temperature, part in summary.groupby("temperature"):
        key, by_label = f"{temperature:g}", part.set_index("label")
        intervals = by_label[["speedup", "speedup_lo", "speedup_hi"]].set_axis(["value", "low", "high"], axis=1)
        speedup[key] = intervals.to_dict("index")
        overhead[key] = by_label["overhead_share"].to_dict()
        trees = by_label.loc[by_label["strategy"] == "tree", "speedup"]
        best[key] = {"label": trees.idxmax(), "speedup": float(trees.max())}
    rows = summary.to_dict("records")
    return {"speedup": speedup, "overhead_share": overhead, "best_tree": best, "summary": rows}


def finish_if_partial(run: NotebookRun, measured: Measurements, metrics: Mapping[str, Any], *, record: Path) -> None:
    """If a prompt is missing, write traces and result.json of the others, then raise IncompleteRun."""
    if measured.stopped:
        _write(run, measured, {**metrics, "greedy_equal_float32": None})
        raise IncompleteRun(
            f"{measured.prompts_done} of {measured.prompts_planned} prompts were measured ({measured.stopped}); "
            f"another run with the same parameters and out_dir continues {record.name}"
        )


def finish(run: NotebookRun, measured: Measurements, metrics: Mapping[str, Any], *, record: Path) -> Path:
    """Write traces and result.json of a complete run, and close its record. Returns as `NotebookRun.finish`."""
    written = _write(run, measured, metrics)
    close_record(record)
    return written


def _write(run: NotebookRun, measured: Measurements, metrics: Mapping[str, Any]) -> Path:
    write_traces(run.out_dir, "rounds", measured.rounds)
    done, planned = measured.prompts_done, measured.prompts_planned
    progress = {"prompts_done": done, "prompts_planned": planned, "complete": not measured.stopped}
    return run.finish({**metrics, **progress})


def _overhead_shares(rounds: pd.DataFrame) -> dict[Hashable, float]:
    sums = rounds.groupby(SETTING)[[f"{stage}_ms" for stage in STAGES]].sum()
    forwards = sums[[f"{stage}_ms" for stage in FORWARDS]].sum(axis=1)
    return dict((1 - forwards / sums.sum(axis=1)).items())
