"""What the notebook shows: servers measured now, or a run that was recorded, and which of the two it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from ddtree.workbook.bench_serving.measure import measure_serving
from ddtree.workbook.bench_serving.summary import rates, round_times, step_costs
from ddtree.workbook.params import ServingParams
from ddtree.workbook.paths import project_root, resolve
from ddtree.workbook.records import RecordError, read_result

LAST_RUN = "docs/h200/serving.json"
NOTEBOOK = "04_serving"
KEYS = ["extra_layers", "name", "method", "budget"]
COLUMNS = {
    "servers": [
        "name",
        "method",
        "budget",
        "topk_cap",
        "extra_layers",
        "layers",
        "command",
        "start_s",
        "url",
        "git_revision",
        "ready_utc",
    ],
    "alone": [*KEYS, "temperature", "prompt", "tokens", "total_s", "first_token_s", "rounds", "acceptance"],
    "together": [*KEYS, "temperature", "batch", "repeat", "tokens", "wall_s", "first_token_s", "rounds", "requests"],
    "histograms": [*KEYS, "temperature", "counts"],
    "greedy": [*KEYS, "prompt", "tokens", "first_difference", "gap_nats", "second_choice"],
    "depth_is_free": ["extra_layers", "prompt", "same"],
    "diversity": ["name", "method", "budget", "temperature", "samples", "distinct"],
    "skipped": ["what", "why"],
}
MAY_BE_NONE = ("budget", "rounds", "acceptance", "first_difference", "gap_nats")
SHOWN = ("target", "drafter", "topk_cap", "draft_temperature", "max_new_tokens", "repeats", "tp")


@dataclass(frozen=True, slots=True)
class Serving:
    """The parts of a run as frames; `source` is a sentence that says where and when it was measured."""

    source: str
    metrics: Mapping[str, Any]  # what result.json holds
    settings: Mapping[str, Any]  # the parameters it was measured with
    servers: pd.DataFrame
    alone: pd.DataFrame
    together: pd.DataFrame
    histograms: pd.DataFrame
    greedy: pd.DataFrame
    depth_is_free: pd.DataFrame
    diversity: pd.DataFrame
    skipped: pd.DataFrame
    rates: pd.DataFrame  # of whole replies, by server, temperature and batch
    steps: pd.DataFrame  # what a plain step costs, by number of identity layers
    rounds: pd.DataFrame  # what a round takes and gives, at batch 1

    @classmethod
    def of(cls, params: ServingParams) -> Serving:
        """Measure now, or read a record: the one named, or the last recorded run where nothing can be measured.

        Raises RecordError for a record that is none, or that is missing.
        """
        if params.recorded:
            return cls.recorded(resolve(params.recorded), params)
        if params.urls or torch.cuda.is_available():
            where = "on servers that ran already" if params.urls else "on this machine, with servers started for it"
            metrics = measure_serving(params, say=print)
            return cls._from(metrics, params.to_plain(), params, f"Measured now, {where}.")
        path = project_root() / LAST_RUN
        nothing = "There is neither a GPU here nor a server's address in `urls`"
        if not path.is_file():
            raise RecordError(
                f"{nothing}, and no recorded run at {LAST_RUN}; name a result.json of {NOTEBOOK} in `recorded`."
            )
        return cls.recorded(path, params, because=f"{nothing}, so this is the last recorded run. ")

    @classmethod
    def recorded(cls, path: Path, params: ServingParams, *, because: str = "") -> Serving:
        """The run in `path`, with intervals from the resamples of `params`. Raises RecordError."""
        record = read_result(path)
        if record["notebook"] != NOTEBOOK or not set(COLUMNS) <= set(record["metrics"]):
            raise RecordError(f"The result {path} is of {record['notebook']}; one of {NOTEBOOK} is needed.")
        made = record["metrics"].get("recorded") or {name: record[name] for name in ("finished_utc", "environment")}
        metrics = record["metrics"] | {"recorded": made | {"params": made.get("params", record["params"])}}
        settings = metrics["recorded"]["params"]
        return cls._from(metrics, settings, params, f"{because}Recorded {_where(made)}; nothing was measured here.")

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
        layers = [layer for layer in self.settings["extra_layers"] if layer]
        if layers:
            added = ", ".join(str(layer) for layer in layers)
            shown["emulated cost"] = f"by {added} identity layers: the text is the model's, a step's cost is not"
        return shown

    @classmethod
    def _from(
        cls, metrics: Mapping[str, Any], settings: Mapping[str, Any], params: ServingParams, source: str
    ) -> Serving:
        frames = {part: _frame(part, metrics[part]) for part in COLUMNS}
        alone, together = frames["alone"], frames["together"]
        drawn = {"resamples": params.bootstrap, "seed": params.seed}
        return cls(
            source,
            metrics,
            settings,
            **frames,
            rates=rates(alone, together, **drawn),
            steps=step_costs(alone, **drawn),
            rounds=round_times(alone, **drawn),
        )


def _frame(part: str, rows: list[dict[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=COLUMNS[part])
    return frame.astype({name: float for name in MAY_BE_NONE if name in frame})


def _where(made: Mapping[str, Any]) -> str:
    machine, packages = made["environment"], made["environment"]["packages"]
    known = ((name, packages.get(name)) for name in ("sglang", "torch", "triton"))
    named = ", ".join(f"{name} {version}" for name, version in known if version)
    return f"on {machine['gpu'] or machine['cpu']} ({named}), {made['finished_utc'][:10]}"
