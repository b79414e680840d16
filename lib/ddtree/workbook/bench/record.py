"""`python -m ddtree.workbook.bench.record PARAMS.yaml OUT_DIR [PART]` measures and writes OUT_DIR/result.json.

For a machine that has a GPU and little else: 07_speed shows the record anywhere (its parameter `recorded`). PART is
"kernels" or "live": SGLang and `dflash_generate` need different releases of transformers, so that one process cannot
measure both. `ddtree.workbook.bench.merge` makes one record of the two. The record is written anew after the stages,
the verify and the attention, and after each model, so that what stops it leaves what was measured.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import psutil
import torch

from ddtree.workbook.bench.measure import measure_kernels, measure_live, measure_speed
from ddtree.workbook.params import ParameterError, SpeedParams
from ddtree.workbook.records import write_result

NOTEBOOK = "07_speed"
PARTS = {"kernels": measure_kernels, "live": measure_live}


def main(arguments: list[str]) -> int:
    """Exit code 0 when the record is written, 2 for wrong arguments or parameters."""
    if len(arguments) not in (2, 3):
        print(f"{len(arguments)} arguments were given; PARAMS.yaml and OUT_DIR are needed.", file=sys.stderr)
        return 2
    parameters, out_dir, *part = arguments
    if part and part[0] not in PARTS:
        print(f'the part is "{part[0]}"; it must be {" or ".join(PARTS)}, or left out for both.', file=sys.stderr)
        return 2
    measure = PARTS[part[0]] if part else measure_speed
    try:
        params = SpeedParams.from_yaml(parameters)
    except ParameterError as error:
        print(error, file=sys.stderr)
        return 2
    torch.set_num_threads(params.threads or psutil.cpu_count(logical=False) or 1)
    began = time.perf_counter()

    def say(line: str) -> None:
        print(f"{time.perf_counter() - began:6.1f} s  {line}", flush=True)

    def keep(metrics: dict[str, Any]) -> Path:
        wall_s = round(time.perf_counter() - began, 1)
        return write_result(Path(out_dir), notebook=NOTEBOOK, params=params, metrics=metrics, wall_s=wall_s)

    print(keep(measure(params, say=say, keep=keep)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
