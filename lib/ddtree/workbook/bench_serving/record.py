"""Measure 04_serving without Jupyter: `python -m ddtree.workbook.bench_serving.record PARAMS.yaml OUT_DIR`.

OUT_DIR/result.json is written anew after each part of a group of servers, so that an interrupted measurement keeps what
it has. To an OUT_DIR that holds a record of the same parameters, groups of other `extra_layers` are added.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import httpx

from ddtree.workbook.bench.timing import Stopwatch
from ddtree.workbook.bench_serving.measure import Metrics, measure_serving
from ddtree.workbook.bench_serving.servers import SGLANG
from ddtree.workbook.params import ParameterError, ServingParams
from ddtree.workbook.records import RESULT_NAME, RecordError, read_result, write_result

NOTEBOOK = "04_serving"
MAY_DIFFER = {"extra_layers", "out_dir", "recorded", "start_timeout_s", "bootstrap", "threads"}
FAILURES = (ImportError, OSError, RuntimeError, ValueError, httpx.TransportError)  # with a sentence to print


def main(arguments: list[str], *, program: Sequence[str] = SGLANG) -> int:
    """Exit code 0 when the record is complete, 1 for what stopped it, 2 for wrong arguments, 130 when interrupted."""
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
    stopwatch = Stopwatch()

    def keep(metrics: Metrics) -> None:
        measured = sorted({row["extra_layers"] for row in metrics["servers"]})
        kept = params.model_copy(update={"extra_layers": measured})
        wall_s = round(stopwatch.wall_s, 1)
        path = write_result(out_dir, notebook=NOTEBOOK, params=kept, metrics=metrics, wall_s=wall_s)
        stopwatch.say(f"kept in {path}")

    try:
        measure_serving(params, say=stopwatch.say, keep=keep, before=before, logs=out_dir / "logs", program=program)
    except FAILURES as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; every server is stopped, and what was measured is kept.", file=sys.stderr)
        return 130
    return 0


def _earlier(out_dir: Path, params: ServingParams) -> Metrics:
    """Rows of the groups in `out_dir`, without those that are measured again. Raises RecordError."""
    path = out_dir / RESULT_NAME
    if not path.exists():
        return {}
    record = read_result(path)
    if record["notebook"] != NOTEBOOK:
        raise RecordError(f"{path} is of {record['notebook']}, not of {NOTEBOOK}; choose another folder.")
    wanted = params.to_plain()
    differing = [name for name in wanted if name not in MAY_DIFFER and record["params"].get(name) != wanted[name]]
    if differing:
        raise RecordError(f"{path} was measured with other {', '.join(differing)}; choose another folder.")
    kept = [group for group in record["params"]["extra_layers"] if group not in params.extra_layers]
    return {
        part: [row for row in rows if kept and row.get("extra_layers", kept[0]) in kept]
        for part, rows in record["metrics"].items()
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
