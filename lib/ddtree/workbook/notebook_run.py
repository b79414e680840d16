"""The first and last line of every notebook: threads set, folder made, versions shown; at the end, result.json."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import torch

from ddtree.models.zoo import Pair, load_pair
from ddtree.verify import backend_report
from ddtree.workbook.params import ModelParams, NotebookParams
from ddtree.workbook.paths import project_root, resolve
from ddtree.workbook.records import environment, write_result

SHOWN = ("ddtree", "torch", "transformers", "dflash", "plotly", "papermill")


@dataclass(frozen=True, slots=True)
class Run:
    """One notebook run from its checked parameters to its record."""

    notebook: str
    params: NotebookParams
    out_dir: Path
    began: float

    @classmethod
    def begin(cls, notebook: str, params: NotebookParams) -> Run:
        """Set torch's threads, make the folder of the results, print versions and machine."""
        torch.set_num_threads(params.threads or psutil.cpu_count(logical=False) or 1)
        out_dir = resolve(params.out_dir)
        out_dir.mkdir(parents=True, exist_ok=True)
        facts = environment()
        packages = facts["packages"]
        print(f"python {facts['python']}", *(f"{name} {packages[name]}" for name in SHOWN[:3]), sep=", ")
        print(*(f"{name} {packages[name]}" for name in SHOWN[3:]), sep=", ")
        print(f"{facts['cpu']}, {facts['torch_threads']} threads; GPU: {facts['gpu'] or 'none'}", flush=True)
        return cls(notebook, params, out_dir, time.perf_counter())

    def load(self) -> Pair:
        """The target and drafter of the parameters. Raises TypeError for a notebook that names none."""
        p = self.params
        if not isinstance(p, ModelParams):
            raise TypeError(f"{self.notebook} has no parameters model and drafter; only ModelParams can load a pair.")
        return load_pair(p.model, p.drafter, dtype=p.dtype, device=p.device)

    def finish(self, metrics: Mapping[str, Any]) -> Path:
        """Write result.json: every parameter, the metrics, versions, device, seed, revision and wall time.

        Returns its path, relative to the project root where it lies under it.
        """
        path = write_result(
            self.out_dir,
            notebook=self.notebook,
            params=self.params,
            metrics=metrics,
            wall_s=round(time.perf_counter() - self.began, 1),
        )
        root = project_root()
        return path.relative_to(root) if path.is_relative_to(root) else path


def backend_table(device: str) -> pd.DataFrame:
    """Which verify backends can run on `device`, and why."""
    report = backend_report(device)
    return pd.DataFrame(
        {"backend": [s.name for s in report], "usable": [s.usable for s in report], "why": [s.reason for s in report]}
    )
