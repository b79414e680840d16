"""Summarise a live run: one row per setting with intervals over prompts, and its part of result.json."""

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
from ddtree.workbook.stats import ratio_of_ratios, ratio_of_sums, resampled_prompts


def summarise(measured: Measurements, *, resamples: int, seed: int) -> pd.DataFrame:
    """One row per setting: speed, speed-up over autoregressive, mean acceptance length, with 95 % intervals.

    Times are decode times, prefill excluded. Intervals resample prompts, the same ones for both sides of a speed-up.
    `overhead_share` is the part of a round spent outside the two model forwards.
    """
    per_prompt = measured.generations.groupby([*SETTING, "prompt"])[["tokens", "rounds", "decode_ms"]].sum()
    weights = resampled_prompts(measured.generations["prompt"].nunique(), resamples, seed)
    overhead = _overhead_shares(measured.rounds)
    rows = []
    groups = dict(list(per_prompt.groupby(SETTING)))
    for setting, own in groups.items():
        base = groups[(setting[0], "autoregressive", "autoregressive", 0)]
        seconds, base_seconds = own["decode_ms"] / 1e3, base["decode_ms"] / 1e3
        estimates = {
            "tokens_per_s": ratio_of_sums(own["tokens"], seconds, weights),
            "speedup": ratio_of_ratios(own["tokens"], seconds, base["tokens"], base_seconds, weights),
            "acceptance": ratio_of_sums(own["tokens"], own["rounds"], weights),
        }
        row: dict[str, object] = dict(zip(SETTING, setting, strict=True))
        for name, found in estimates.items():
            row |= {name: found.value, f"{name}_lo": found.low, f"{name}_hi": found.high}
        row |= {"overhead_share": overhead[setting], "rounds": own["rounds"].sum(), "tokens": own["tokens"].sum()}
        rows.append(row)
    order = {"autoregressive": 0, "chain": 1, "tree": 2}
    frame = pd.DataFrame(rows)
    return frame.sort_values(
        ["temperature", "strategy", "budget"], key=lambda c: c.map(order) if c.name == "strategy" else c
    ).reset_index(drop=True)


def metrics_of(summary: pd.DataFrame) -> dict[str, object]:
    """What result.json says of a summary: speed-up and overhead by temperature and label, and the best tree."""
    speedup: dict[str, dict[str, object]] = {}
    overhead: dict[str, dict[str, float]] = {}
    best: dict[str, dict[str, object]] = {}
    for temperature, part in summary.groupby("temperature"):
        rows = part.to_dict("records")
        key = f"{temperature:g}"
        speedup[key] = {
            row["label"]: {"value": row["speedup"], "low": row["speedup_lo"], "high": row["speedup_hi"]} for row in rows
        }
        overhead[key] = {row["label"]: row["overhead_share"] for row in rows}
        fastest = max((row for row in rows if row["strategy"] == "tree"), key=lambda row: row["speedup"])
        best[key] = {"label": fastest["label"], "speedup": fastest["speedup"]}
    return {
        "speedup": speedup,
        "overhead_share": overhead,
        "best_tree": best,
        "summary": summary.to_dict("records"),
    }


def _overhead_shares(rounds: pd.DataFrame) -> dict[Hashable, float]:
    sums = rounds.groupby(SETTING)[[f"{stage}_ms" for stage in STAGES]].sum()
    forwards = sums[[f"{stage}_ms" for stage in FORWARDS]].sum(axis=1)
    return dict((1 - forwards / sums.sum(axis=1)).items())


class IncompleteRun(RuntimeError):  # noqa: N818 (a report shows this name: it is no defect of the program)
    """Some prompts were not measured; result.json holds those that were."""


def end_if_partial(run: NotebookRun, measured: Measurements, metrics: Mapping[str, Any], *, record: Path) -> None:
    """Nothing if every prompt was measured; else traces and result.json of what there is, then IncompleteRun."""
    if not measured.stopped:
        return
    write_traces(run.out_dir, "rounds", measured.rounds)
    run.finish({**metrics, **progress(measured), "greedy_equal_float32": None})
    raise IncompleteRun(
        f"{measured.prompts_done} of {measured.prompts_planned} prompts were measured ({measured.stopped}); "
        f"another run with the same parameters and out_dir continues {record.name}"
    )


def finish(run: NotebookRun, measured: Measurements, metrics: Mapping[str, Any], *, record: Path) -> Path:
    """Write traces and result.json of a run that is complete, and close its record. Returns as `NotebookRun.finish`."""
    write_traces(run.out_dir, "rounds", measured.rounds)
    written = run.finish({**metrics, **progress(measured)})
    close_record(record)
    return written


def progress(measured: Measurements) -> dict[str, Any]:
    """prompts_done, prompts_planned and complete, for result.json."""
    return {
        "prompts_done": measured.prompts_done,
        "prompts_planned": measured.prompts_planned,
        "complete": not measured.stopped,
    }
