"""What the notebook shows: a measurement made now, or one that was recorded elsewhere, and which of the two it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ddtree.workbook.params import SpeedParams
from ddtree.workbook.paths import resolve
from ddtree.workbook.records import RecordError, read_result
from ddtree.workbook.speed.measure import measure_speed

PARTS = ("stages", "builders", "verify", "rounds", "chain")


@dataclass(frozen=True, slots=True)
class Speed:
    """The parts of a measurement as frames; `source` is a sentence that says where and when it was made."""

    source: str
    metrics: Mapping[str, Any]  # what result.json holds
    settings: Mapping[str, Any]  # the parameters it was measured with
    stages: pd.DataFrame
    builders: pd.DataFrame
    verify: pd.DataFrame
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
        if not set(PARTS) <= set(record["metrics"]):
            raise RecordError(f"The result {path} is of {record['notebook']}; one of 07_speed is needed.")
        metrics = record["metrics"] | {"recorded": {name: record[name] for name in ("finished_utc", "environment")}}
        return cls._from(metrics, record["params"], f"Recorded {_where(record)}; not measured here.")

    @classmethod
    def _from(cls, metrics: Mapping[str, Any], settings: Mapping[str, Any], source: str) -> Speed:
        frames = {part: pd.DataFrame(metrics[part]) for part in (*PARTS, "skipped")}
        return cls(source, metrics, settings, **frames)


def _where(record: Mapping[str, Any]) -> str:
    machine, packages = record["environment"], record["environment"]["packages"]
    named = ", ".join(f"{name} {packages[name]}" for name in ("torch", "triton", "transformers") if packages[name])
    return f"on {machine['gpu'] or machine['cpu']} ({named}), {record['finished_utc'][:10]}"
