"""The record of a live run in progress: a line per generation as it came, and beside it what the lines are of.

Invariant: while OUT/NAME.unfinished.json stands beside OUT/NAME.jsonl, the lines belong to the run it describes and a
rerun of the same continues after the last whole one; `close_record` removes it when the run is done.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ddtree
from ddtree.adaptive_budget import RoundCost
from ddtree.models.zoo import Pair
from ddtree.workbook.params import LiveParams
from ddtree.workbook.records import RecordError, append_jsonl, environment, write_text

# What is done with the measurement, or measured after it: another value leaves the record as it is.
AFTERWARDS = {
    "out_dir",
    "bootstrap",
    "regression_prompts",
    "regression_tokens",
    "diversity_samples",
    "diversity_tokens",
}


@dataclass(frozen=True, slots=True)
class LiveRecord:
    """Lines of `path`, each a generation with its rounds, and what they were measured with."""

    path: Path
    identity: dict[str, Any]

    @classmethod
    def open(cls, path: Path, pair: Pair, params: LiveParams) -> LiveRecord:
        """Continue an unfinished record of the same parameters, code and machine, else start an empty one.

        An unfinished record of another run is moved aside, a torn last line dropped; each is said in a printed line.
        The record of a finished run is removed. Raises RecordError, naming file and line, for a line that is no JSON.
        """
        record = cls(path, _identity(pair, params))
        if not record._sidecar.is_file():
            path.unlink(missing_ok=True)
            record._cost.unlink(missing_ok=True)
        elif differing := record._differing():
            aside = _free_name(path)
            if path.is_file():
                path.replace(aside)
            record._cost.unlink(missing_ok=True)
            print(f"{path.name} is of a run with another {', '.join(differing)}; it is now {aside.name}.", flush=True)
        else:
            record._drop_torn_line()
        write_text(record._sidecar, json.dumps(record.identity, indent=1, ensure_ascii=False) + "\n")
        return record

    def append(self, row: dict[str, object]) -> None:
        """Add a generation and wait until it is on disk. Raises RecordError."""
        append_jsonl(self.path, row)

    def round_cost(self, measure: Callable[[], RoundCost]) -> RoundCost:
        """What a round costs, measured once: a record that is continued goes on with the cost that it began with."""
        if not self._cost.is_file():
            write_text(self._cost, json.dumps(dataclasses.asdict(measure())) + "\n")
        try:
            found = json.loads(self._cost.read_text(encoding="utf-8"))
            return RoundCost(tuple(found["budgets"]), tuple(found["ms"]), found["baseline_ms"])
        except (ValueError, KeyError, TypeError) as error:
            raise RecordError(
                f"{self._cost} holds no cost of a round ({error}); remove it to measure afresh."
            ) from error

    def rows(self) -> list[dict[str, Any]]:
        """All whole lines, in the order in which they were measured. Raises RecordError."""
        if not self.path.is_file():
            return []
        rows = []
        for number, line in enumerate(self.path.read_bytes().splitlines(keepends=True), start=1):
            if not line.endswith(b"\n"):  # torn: the run was stopped while it wrote this line
                break
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise RecordError(
                    f"line {number} of {self.path} is no JSON ({error}); move the file away to measure afresh."
                ) from error
        return rows

    @property
    def _cost(self) -> Path:
        return self.path.with_suffix(".cost.json")

    @property
    def _sidecar(self) -> Path:
        return _sidecar_of(self.path)

    def _differing(self) -> list[str]:
        try:
            found = json.loads(self._sidecar.read_text(encoding="utf-8"))
        except ValueError:
            return ["description (it cannot be read)"]
        return [name for name, value in self.identity.items() if found.get(name) != value]

    def _drop_torn_line(self) -> None:
        content = self.path.read_bytes() if self.path.is_file() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            with self.path.open("r+b") as file:
                file.truncate(len(whole))
            print(f"the last line of {self.path.name} was torn and is measured again.", flush=True)


def close_record(path: Path) -> None:
    """The run is done: the next one measures afresh."""
    _sidecar_of(path).unlink(missing_ok=True)


def _sidecar_of(path: Path) -> Path:
    return path.with_suffix(".unfinished.json")


def _identity(pair: Pair, params: LiveParams) -> dict[str, Any]:
    """All that the measurement depends on, as JSON gives it back."""
    machine = environment()
    packages = machine["packages"]
    measured = {name: value for name, value in params.to_plain().items() if name not in AFTERWARDS}
    identity = {
        **measured,
        "pair": pair.facts,
        "machine": [machine["cpu"], machine["gpu"], machine["torch_threads"]],
        "versions": [packages["ddtree"], packages["torch"], packages["transformers"], packages["dflash"]],
        "code": code_digest(),
    }
    plain: dict[str, Any] = json.loads(json.dumps(identity))
    return plain


def code_digest() -> str:
    """Sha256 of the package's modules but for the workbook's: what decodes, whatever else a revision changes."""
    package = Path(ddtree.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package)
        if name.parts[0] != "workbook":
            digest.update(f"{name.as_posix()}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _free_name(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.stem}.other-{number}{path.suffix}")).exists():
        number += 1
    return aside
