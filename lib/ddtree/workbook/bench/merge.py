"""`python -m ddtree.workbook.bench.merge KERNELS LIVE OUT_DIR` writes one record of two parts of one measurement.

Each of the first two is a result.json, or its folder, that `ddtree.workbook.bench.record` wrote for a part. The record
says of each part when, at which commit and beside which packages it was measured.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddtree.workbook.records import RESULT_NAME, RecordError, read_result, write_text

OF = {
    "kernels": ("stages", "builders", "verify", "attention"),
    "live": ("models", "rounds", "chain"),
}  # what each part measures
APART = ("out_dir",)  # parameters that may differ
SAME_MACHINE = ("gpu", "cpu")
SAID = ("finished_utc", "wall_s", "git_revision", "environment")  # of each part


def merged(kernels: Mapping[str, Any], live: Mapping[str, Any]) -> dict[str, Any]:
    """The record of both; its environment and revision are the kernels'.

    Raises RecordError for a record that holds another part, and for parts that do not belong together: other
    parameters, or another machine.
    """
    parts = {"kernels": kernels, "live": live}
    for name, record in parts.items():
        found = [part for part, keys in OF.items() if set(keys) <= set(record["metrics"])]
        if found != [name]:
            raise RecordError(f"The record given as {name} holds {' and '.join(found) or 'no part'}, not {name} alone.")
    for key in set(kernels["params"]) | set(live["params"]):
        one, other = kernels["params"].get(key), live["params"].get(key)
        if one != other and key not in APART:
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
            "parts": {name: {key: record[key] for key in SAID} for name, record in parts.items()},
        },
    }


def main(arguments: list[str]) -> int:
    """Exit code 0 when the record is written, 2 for wrong arguments or records that do not belong together."""
    if len(arguments) != 3:
        print(f"{len(arguments)} arguments were given; KERNELS, LIVE and OUT_DIR are needed.", file=sys.stderr)
        return 2
    kernels, live, out_dir = arguments
    try:
        record = merged(read_result(kernels), read_result(live))
        path = Path(out_dir) / RESULT_NAME
        write_text(path, json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    except RecordError as error:
        print(error, file=sys.stderr)
        return 2
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
