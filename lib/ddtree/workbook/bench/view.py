"""Read or make what 07_speed shows: a measurement made now, or one that was recorded elsewhere, and say which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ddtree.workbook.bench.measure import measure_speed
from ddtree.workbook.params import SpeedParams
from ddtree.workbook.paths import resolve
from ddtree.workbook.records import RecordError, read_result

PARTS = ("stages", "builders", "verify", "attention", "rounds", "chain")
PACKAGES = ("torch", "triton", "transformers", "sglang", "dflash")  # that times depend on
NOT_SHOWN = ("out_dir", "recorded", "prompts", "live_models")  # of a record's parameters


@dataclass(frozen=True, slots=True)
class SpeedResults:
    """The parts of a measurement as frames; `source` is a sentence that says where and when it was made."""

    source: str
    metrics: Mapping[str, Any]  # of result.json
    settings: Mapping[str, Any]  # the parameters it was measured with
    stages: pd.DataFrame
    builders: pd.DataFrame
    verify: pd.DataFrame
    attention: pd.DataFrame
    rounds: pd.DataFrame
    chain: pd.DataFrame
    skipped: pd.DataFrame

    @classmethod
    def measured_or_recorded(cls, params: SpeedParams) -> SpeedResults:
        """Measure now, or read the record that `params.recorded` names. Raises RecordError for a wrong record."""
        if not params.recorded:
            source = "Measured in this process, on this machine."
            return cls._from_metrics(measure_speed(params), params.to_plain(), source)
        path = resolve(params.recorded)
        record = read_result(path)
        missing = [part for part in PARTS if part not in record["metrics"]]
        if len(missing) == len(PARTS):
            raise RecordError(f"The result {path} is of {record['notebook']}; one of 07_speed is needed.")
        if missing:
            raise RecordError(
                f"The result {path} lacks {', '.join(missing)}: it is only one part. "
                "Make one record of both parts with `python -m ddtree.workbook.bench.record merge`."
            )
        metrics = record["metrics"] | {"recorded": {name: record[name] for name in ("finished_utc", "environment")}}
        source = f"Recorded {describe_origin(record, PACKAGES)}; not measured here."
        return cls._from_metrics(metrics, record["params"], source)

    @classmethod
    def _from_metrics(cls, metrics: Mapping[str, Any], settings: Mapping[str, Any], source: str) -> SpeedResults:
        frames = {part: pd.DataFrame(metrics[part]) for part in (*PARTS, "skipped")}
        return cls(source, metrics, settings, **frames)

    def facts(self) -> dict[str, object]:
        """Where the numbers come from and, for a record, the parameters it was measured with."""
        copied = f"{self.metrics['copy_bytes_per_s'] / 1e9:,.0f} GB/s, read and written"
        models = [f"{m['name']} ({m['dtype']}, {m['target_bytes'] / 2**30:.2f} GiB)" for m in self.metrics["models"]]
        shown: dict[str, object] = {"source": self.source, "large copy": copied}
        shown["live models"] = ", ".join(models) or "none"
        for part, origin in self.metrics.get("parts", {}).items():
            shown[f"{part} measured"] = describe_origin(origin, PACKAGES)
        if "recorded" in self.metrics:
            shown |= {name: value for name, value in self.settings.items() if name not in NOT_SHOWN}
        return shown


def describe_origin(record: Mapping[str, Any], packages: Sequence[str]) -> str:
    """ "on NVIDIA H200 (torch 2.11.0, sglang 0.5.16), 2026-11-30": machine, versions of `packages` and day."""
    machine = record["environment"]
    found = [f"{name} {machine['packages'][name]}" for name in packages if machine["packages"].get(name)]
    return f"on {machine['gpu'] or machine['cpu']} ({', '.join(found)}), {record['finished_utc'][:10]}"
