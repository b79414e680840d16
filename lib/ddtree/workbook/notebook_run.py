"""Start and finish a notebook run: threads, folder and run.json first, result.json last."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import torch

from ddtree.models.zoo import Pair, load_pair
from ddtree.verify import backend_report
from ddtree.workbook.params import ModelParams, NotebookParams
from ddtree.workbook.paths import project_root, resolve
from ddtree.workbook.records import read_result, write_result, write_run

SHOWN = ("ddtree", "torch", "transformers", "dflash", "plotly", "papermill")


@dataclass(frozen=True, slots=True)
class NotebookRun:
    """One notebook run from its checked parameters to its record; `began` is a reading of `time.perf_counter`."""

    notebook: str
    params: NotebookParams
    out_dir: Path
    started_utc: datetime
    began: float

    @classmethod
    def start(cls, notebook: str, params: NotebookParams) -> NotebookRun:
        """Set torch's threads, write run.json into the folder of the results, print versions and machine.

        Raises RecordError when the folder cannot be written.
        """
        run = cls(notebook, params, resolve(params.out_dir), datetime.now(UTC), time.perf_counter())
        torch.set_num_threads(params.threads or psutil.cpu_count(logical=False) or 1)
        path = write_run(run.out_dir, notebook=notebook, params=params, started_utc=run.started_utc)
        facts = read_result(path)["environment"]
        packages = facts["packages"]
        print(f"python {facts['python']}", *(f"{name} {packages[name]}" for name in SHOWN[:3]), sep=", ")
        print(*(f"{name} {packages[name]}" for name in SHOWN[3:]), sep=", ")
        print(f"{facts['cpu']}, {facts['torch_threads']} threads; GPU: {facts['gpu'] or 'none'}", flush=True)
        return run

    def load(self) -> Pair:
        """The target and drafter of the parameters. Raises TypeError for a notebook without a pair of models."""
        p = self.params
        if not isinstance(p, ModelParams):
            raise TypeError(f"{self.notebook} has no parameters model and drafter; only ModelParams can load a pair.")
        return load_pair(p.model, p.drafter, dtype=p.dtype, device=p.device)

    def finish(self, metrics: Mapping[str, Any]) -> Path:
        """Write result.json: metrics and wall time, and again every parameter, versions, device, seed and revision.

        Returns its path, relative to the project root if it is under it.
        """
        path = write_result(
            self.out_dir,
            notebook=self.notebook,
            params=self.params,
            metrics=metrics,
            wall_s=round(time.perf_counter() - self.began, 1),
            started_utc=self.started_utc,
        )
        root = project_root()
        return path.relative_to(root) if path.is_relative_to(root) else path


def backend_table(device: str) -> pd.DataFrame:
    """Which verify backends can run on `device`, and why."""
    report = backend_report(device)
    return pd.DataFrame(
        {"backend": [s.name for s in report], "usable": [s.usable for s in report], "why": [s.reason for s in report]}
    )
