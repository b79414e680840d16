"""`python -m ddtree.workbook.bench_serving.record PARAMS.yaml OUT_DIR` measures into OUT_DIR/result.json.

The record is written anew after each part of a group of servers, so that what stops it leaves what was measured. An
OUT_DIR that holds a record of the same parameters is added to: groups of other `extra_layers` stay as they are.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from ddtree.workbook.bench_serving.measure import Metrics, measure_serving
from ddtree.workbook.bench_serving.servers import SGLANG
from ddtree.workbook.params import ParameterError, ServingParams
from ddtree.workbook.records import RESULT_NAME, RecordError, read_result, write_result

NOTEBOOK = "04_serving"
MAY_DIFFER = {"extra_layers", "out_dir", "recorded", "start_timeout_s", "bootstrap", "threads"}
FAILURES = (ImportError, OSError, RuntimeError, ValueError, httpx.TransportError)  # each with a sentence to print


def main(arguments: list[str], *, program: Sequence[str] = SGLANG) -> int:
    """Exit code 0 when the record is whole, 1 for what stopped it, 2 for wrong arguments, 130 when interrupted."""
    if len(arguments) != 2:
        print(f"{len(arguments)} arguments were given; PARAMS.yaml and OUT_DIR are needed.", file=sys.stderr)
        return 2
    out_dir = Path(arguments[1])
    try:
        params = ServingParams.from_yaml(arguments[0])
        before = _earlier(out_dir, params)
    except (ParameterError, RecordError) as error:
        print(error, file=sys.stderr)
        return 2
    began = time.perf_counter()

    def say(line: str) -> None:
        print(f"{time.perf_counter() - began:6.1f} s  {line}", flush=True)

    def keep(metrics: Metrics) -> None:
        measured = sorted({row["extra_layers"] for row in metrics["servers"]})
        kept = params.model_copy(update={"extra_layers": measured})
        wall_s = round(time.perf_counter() - began, 1)
        say(f"kept in {write_result(out_dir, notebook=NOTEBOOK, params=kept, metrics=metrics, wall_s=wall_s)}")

    try:
        measure_serving(params, say=say, keep=keep, before=before, logs=out_dir / "logs", program=program)
    except FAILURES as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; every server is stopped, and what was measured is kept.", file=sys.stderr)
        return 130
    return 0


def _earlier(out_dir: Path, params: ServingParams) -> Metrics:
    """Rows of the groups that `out_dir` holds, without groups that are to be measured again."""
    if not (out_dir / RESULT_NAME).exists():
        return {}
    record = read_result(out_dir)
    if record["notebook"] != NOTEBOOK:
        raise RecordError(f"{out_dir / RESULT_NAME} is of {record['notebook']}; choose another folder.")
    asked = params.to_plain()
    differing = [name for name in asked if name not in MAY_DIFFER and record["params"].get(name) != asked[name]]
    if differing:
        names = ", ".join(differing)
        raise RecordError(f"{out_dir / RESULT_NAME} was measured with other {names}; choose another folder.")
    kept = [group for group in record["params"]["extra_layers"] if group not in params.extra_layers]
    return {
        part: [row for row in rows if kept and row.get("extra_layers", kept[0]) in kept]
        for part, rows in record["metrics"].items()
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
