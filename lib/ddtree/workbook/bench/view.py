"""What the notebook shows: a measurement made now, or one that was recorded elsewhere, and which of the two it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ddtree.workbook.bench.measure import measure_speed
from ddtree.workbook.params import SpeedParams
from ddtree.workbook.paths import resolve
from ddtree.workbook.records import RecordError, read_result

PARTS = ("stages", "builders", "verify", "attention", "rounds", "chain")
NAMED = ("torch", "triton", "transformers", "sglang", "dflash")  # packages that a time depends on
NOT_SHOWN = ("out_dir", "recorded", "prompts", "live_models")  # of a record's parameters


@dataclass(frozen=True, slots=True)
class Speed:
    """The parts of a measurement as frames; `source` is a sentence that says where and when it was made."""

    source: str
    metrics: Mapping[str, Any]  # what result.json holds
    settings: Mapping[str, Any]  # the parameters it was measured with
    stages: pd.DataFrame
    builders: pd.DataFrame
    verify: pd.DataFrame
    attention: pd.DataFrame
    rounds: pd.DataFrame
    chain: pd.DataFrame
    skipped: pd.DataFrame

    @classmethod
    def of(cls, params: SpeedParams) -> Speed:
        """Measure now, or read the record that `params.recorded` names. Raises RecordError for one that is none."""
        if not params.recorded:
            return cls._from(measure_speed(params), params.to_plain(), "Measured in this process, on this machine.")
        path = resolve(params.recorded)
        record = read_result(path)
        missing = [part for part in PARTS if part not in record["metrics"]]
        if len(missing) == len(PARTS):
            raise RecordError(f"The result {path} is of {record['notebook']}; one of 07_speed is needed.")
        if missing:
            lacks = ", ".join(missing)
            raise RecordError(f"The result {path} lacks {lacks}: a part alone; see ddtree.workbook.bench.merge.")
        metrics = record["metrics"] | {"recorded": {name: record[name] for name in ("finished_utc", "environment")}}
        return cls._from(metrics, record["params"], f"Recorded {_where(record)}; not measured here.")

    def facts(self) -> dict[str, object]:
        """Where the numbers come from, and what a report of another run's record does not say elsewhere."""
        copied = f"{self.metrics['copy_bytes_per_s'] / 1e9:,.0f} GB/s, read and written"
        models = [f"{m['name']} ({m['dtype']}, {m['target_bytes'] / 2**30:.2f} GiB)" for m in self.metrics["models"]]
        shown: dict[str, object] = {"source": self.source, "large copy": copied}
        shown["live models"] = ", ".join(models) or "none"
        for part, made in self.metrics.get("parts", {}).items():
            shown[f"{part} measured"] = _where(made)
        if "recorded" not in self.metrics:
            return shown
        return shown | {name: value for name, value in self.settings.items() if name not in NOT_SHOWN}

    @classmethod
    def _from(cls, metrics: Mapping[str, Any], settings: Mapping[str, Any], source: str) -> Speed:
        frames = {part: pd.DataFrame(metrics[part]) for part in (*PARTS, "skipped")}
        return cls(source, metrics, settings, **frames)


def _where(record: Mapping[str, Any]) -> str:
    machine, packages = record["environment"], record["environment"]["packages"]
    named = ", ".join(f"{name} {packages[name]}" for name in NAMED if packages[name])
    return f"on {machine['gpu'] or machine['cpu']} ({named}), {record['finished_utc'][:10]}"
