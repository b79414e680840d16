"""Measure 07_speed without Jupyter and write OUT_DIR/result.json, or merge two parts measured apart.

    python -m ddtree.workbook.bench.record PARAMS.yaml OUT_DIR [kernels|live]
    python -m ddtree.workbook.bench.record merge KERNELS LIVE OUT_DIR

For a machine with a GPU and little else: 07_speed shows the record anywhere (its parameter `recorded`). SGLang and
`dflash_generate` need different releases of transformers, so one process cannot measure both parts; `merge` makes one
record of the two, each a result.json or its folder. A record is written anew after each part of the measurement, so
that an interrupted one keeps what it has.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import torch

from ddtree.workbook.bench.measure import measure_kernels, measure_live, measure_speed
from ddtree.workbook.bench.timing import Stopwatch
from ddtree.workbook.params import ParameterError, SpeedParams
from ddtree.workbook.records import RESULT_NAME, RecordError, read_result, write_result, write_text

NOTEBOOK = "07_speed"
PARTS = {"kernels": measure_kernels, "live": measure_live}
METRICS_OF = {"kernels": ("stages", "builders", "verify", "attention"), "live": ("models", "rounds", "chain")}
MAY_DIFFER = ("out_dir",)  # parameters of the two parts
SAME_MACHINE = ("gpu", "cpu")
KEPT_OF_A_PART = ("finished_utc", "wall_s", "git_revision", "environment")


def main(arguments: list[str]) -> int:
    """Exit code 0 when the record is written, 2 for wrong arguments, parameters or records."""
    try:
        match arguments:
            case ["merge", kernels, live, out_dir]:
                record = merge_parts(read_result(kernels), read_result(live))
                path = Path(out_dir) / RESULT_NAME
                write_text(path, json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
            case [parameters, out_dir, *part] if parameters != "merge" and len(part) < 2:
                if part and part[0] not in PARTS:
                    return _refuse(f'the part is "{part[0]}"; it must be {" or ".join(PARTS)}, or left out for both.')
                path = _measure(SpeedParams.from_yaml(parameters), Path(out_dir), part)
            case _:
                needed = "PARAMS.yaml and OUT_DIR, or merge, KERNELS, LIVE and OUT_DIR"
                return _refuse(f"{len(arguments)} arguments were given; {needed} are needed.")
    except (ParameterError, RecordError) as error:
        return _refuse(error)
    print(path)
    return 0


def _refuse(why: object) -> int:
    print(why, file=sys.stderr)
    return 2


def _measure(params: SpeedParams, out_dir: Path, part: list[str]) -> Path:
    torch.set_num_threads(params.threads or psutil.cpu_count(logical=False) or 1)
    stopwatch = Stopwatch()

    def keep(metrics: dict[str, Any]) -> Path:
        wall_s = round(stopwatch.wall_s, 1)
        return write_result(out_dir, notebook=NOTEBOOK, params=params, metrics=metrics, wall_s=wall_s)

    measure = PARTS[part[0]] if part else measure_speed
    return keep(measure(params, say=stopwatch.say, keep=keep))


def merge_parts(kernels: Mapping[str, Any], live: Mapping[str, Any]) -> dict[str, Any]:
    """One record of both parts, with environment and revision of the kernels'; `metrics.parts` has those of each.

    Raises RecordError for a record that holds another part, and for parts with different parameters or machines.
    """
    parts = {"kernels": kernels, "live": live}
    for name, record in parts.items():
        found = [part for part, keys in METRICS_OF.items() if set(keys) <= set(record["metrics"])]
        if found != [name]:
            raise RecordError(f"The record given as {name} holds {' and '.join(found) or 'no part'}, not only {name}.")
    for key in set(kernels["params"]) | set(live["params"]):
        one, other = kernels["params"].get(key), live["params"].get(key)
        if one != other and key not in MAY_DIFFER:
            raise RecordError(f"Both parts need the same parameters; {key} is {one} for the kernels, {other} live.")
    for key in SAME_MACHINE:
        one, other = kernels["environment"][key], live["environment"][key]
        if one != other:
            raise RecordError(f"Both parts must come from one machine; {key} is {one} for the kernels, {other} live.")
    return {
        **kernels,
        "finished_utc": max(kernels["finished_utc"], live["finished_utc"]),
        "wall_s": round(kernels["wall_s"] + live["wall_s"], 1),
        "peak_rss_mib": max(kernels["peak_rss_mib"], live["peak_rss_mib"]),
        "metrics": {
            **kernels["metrics"],
            **live["metrics"],
            "skipped": kernels["metrics"]["skipped"] + live["metrics"]["skipped"],
            "parts": {name: {key: record[key] for key in KEPT_OF_A_PART} for name, record in parts.items()},
        },
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
