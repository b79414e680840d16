"""`python -m ddtree.workbook.speed.record PARAMS.yaml OUT_DIR` measures without Jupyter and writes OUT_DIR/result.json.

For a machine that has a GPU and little else: 07_speed shows the record anywhere (its parameter `recorded`).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil
import torch

from ddtree.workbook.params import ParameterError, SpeedParams
from ddtree.workbook.records import write_result
from ddtree.workbook.speed.measure import measure_speed

NOTEBOOK = "07_speed"


def main(arguments: list[str]) -> int:
    """Exit code 0 when the record is written, 2 for wrong arguments or parameters."""
    if len(arguments) != 2:
        print(f"{len(arguments)} arguments were given; PARAMS.yaml and OUT_DIR are needed.", file=sys.stderr)
        return 2
    parameters, out_dir = arguments
    try:
        params = SpeedParams.from_yaml(parameters)
    except ParameterError as error:
        print(error, file=sys.stderr)
        return 2
    torch.set_num_threads(params.threads or psutil.cpu_count(logical=False) or 1)
    began = time.perf_counter()

    def say(line: str) -> None:
        print(f"{time.perf_counter() - began:6.1f} s  {line}", flush=True)

    metrics = measure_speed(params, say=say)
    wall_s = round(time.perf_counter() - began, 1)
    print(write_result(Path(out_dir), notebook=NOTEBOOK, params=params, metrics=metrics, wall_s=wall_s))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
