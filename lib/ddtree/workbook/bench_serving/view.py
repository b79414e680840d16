"""Read or make what 04_serving shows: servers measured now, or a run that was recorded, and say which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from ddtree.workbook.bench.view import describe_origin
from ddtree.workbook.bench_serving.measure import measure_serving
from ddtree.workbook.bench_serving.summary import rates, round_times, step_costs
from ddtree.workbook.params import ServingParams
from ddtree.workbook.paths import project_root, resolve
from ddtree.workbook.records import RecordError, read_result

LAST_RUN = "docs/h200/serving.json"
NOTEBOOK = "04_serving"
SERVER = ["extra_layers", "name", "method", "budget"]
COLUMNS = {
    "servers": [*SERVER, "topk_cap", "layers", "command", "start_s", "url", "git_revision", "ready_utc"],
    "alone": [*SERVER, "temperature", "prompt", "tokens", "total_s", "first_token_s", "rounds", "acceptance"],
    "together": [*SERVER, "temperature", "batch", "repeat", "tokens", "wall_s", "first_token_s", "rounds", "requests"],
    "histograms": [*SERVER, "temperature", "counts"],
    "greedy": [*SERVER, "prompt", "tokens", "first_difference", "gap_nats", "second_choice"],
    "depth_is_free": ["extra_layers", "prompt", "same"],
    "diversity": ["name", "method", "budget", "temperature", "samples", "distinct"],
    "skipped": ["what", "why"],
}
NUMBERS_OR_NONE = ("budget", "rounds", "acceptance", "first_difference", "gap_nats")
PACKAGES = ("sglang", "torch", "triton")  # that rates depend on
SHOWN = ("target", "drafter", "topk_cap", "draft_temperature", "max_new_tokens", "repeats", "tp")


@dataclass(frozen=True, slots=True)
class ServingResults:
    """The parts of a run as frames; `source` is a sentence that says where and when it was measured."""

    source: str
    metrics: Mapping[str, Any]  # of result.json
    settings: Mapping[str, Any]  # the parameters it was measured with
    servers: pd.DataFrame
    histograms: pd.DataFrame
    greedy: pd.DataFrame
    depth_is_free: pd.DataFrame
    diversity: pd.DataFrame
    skipped: pd.DataFrame
    rates: pd.DataFrame  # of whole replies, by server, temperature and batch
    steps: pd.DataFrame  # the cost of a plain step, by number of identity layers
    rounds: pd.DataFrame  # time and tokens of a round, at batch 1

    @classmethod
    def measured_or_recorded(cls, params: ServingParams) -> ServingResults:
        """Measure now, or read a record: the named one, or the last recorded run where nothing can be measured.

        Raises RecordError for a wrong or missing record.
        """
        if params.recorded:
            return cls.recorded(resolve(params.recorded), params)
        if params.urls or torch.cuda.is_available():
            where = "on servers that were running" if params.urls else "on this machine, with servers started for it"
            metrics = measure_serving(params, say=print)
            return cls.from_metrics(metrics, params.to_plain(), params, f"Measured now, {where}.")
        path = project_root() / LAST_RUN
        nothing = "There is neither a GPU here nor a server's address in `urls`"
        if not path.is_file():
            raise RecordError(
                f"{nothing}, and no recorded run at {LAST_RUN}; name a result.json of {NOTEBOOK} in `recorded`."
            )
        return cls.recorded(path, params, because=f"{nothing}, so this is the last recorded run. ")

    @classmethod
    def recorded(cls, path: Path, params: ServingParams, *, because: str = "") -> ServingResults:
        """The run in `path`, with intervals from the resamples of `params`. Raises RecordError."""
        record = read_result(path)
        if record["notebook"] != NOTEBOOK or not set(COLUMNS) <= set(record["metrics"]):
            raise RecordError(f"The result {path} is of {record['notebook']}; one of {NOTEBOOK} is needed.")
        origin = record["metrics"].get("recorded") or {name: record[name] for name in ("finished_utc", "environment")}
        origin = origin | {"params": origin.get("params", record["params"])}
        source = f"{because}Recorded {describe_origin(origin, PACKAGES)}; nothing was measured here."
        return cls.from_metrics(record["metrics"] | {"recorded": origin}, origin["params"], params, source)

    @classmethod
    def from_metrics(
        cls, metrics: Mapping[str, Any], settings: Mapping[str, Any], params: ServingParams, source: str
    ) -> ServingResults:
        """The parts in `metrics`, measured with `settings`; intervals come from the resamples of `params`."""
        frames = {part: _frame(part, metrics[part]) for part in COLUMNS}
        single, batched = frames.pop("alone"), frames.pop("together")
        bootstrap = {"resamples": params.bootstrap, "seed": params.seed}
        return cls(
            source,
            metrics,
            settings,
            **frames,
            rates=rates(single, batched, **bootstrap),
            steps=step_costs(single, **bootstrap),
            rounds=round_times(single, **bootstrap),
        )

    @property
    def batches(self) -> list[int]:
        """The batches measured, ascending."""
        return sorted(int(batch) for batch in self.rates["batch"].unique())

    @property
    def emulated(self) -> bool:
        """Whether some of what is shown has a cost that identity layers emulate."""
        return bool((self.steps["extra_layers"] > 0).any())

    def facts(self) -> dict[str, object]:
        """What the numbers were measured with."""
        shown: dict[str, object] = {name.replace("_", " "): self.settings[name] for name in SHOWN}
        shown["prompts"] = len(self.settings["prompts"])
        if layers := ", ".join(str(layers) for layers in self.settings["extra_layers"] if layers):
            shown["emulated cost"] = f"by {layers} identity layers: the text is the model's, a step's cost is not"
        return shown


def _frame(part: str, rows: list[dict[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=COLUMNS[part])
    return frame.astype({name: float for name in NUMBERS_OR_NONE if name in frame})
