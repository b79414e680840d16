"""Keeps the record of a live run in progress: one JSON line per generation, and next to it what the lines belong to.

Invariant: while OUT/NAME.unfinished.json exists, the lines of OUT/NAME.jsonl belong to the run it describes, and
another run with the same parameters continues after the last whole line; `close_record` removes it at the end.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
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

# Parameters that are not part of a run's identity: they decide what is done with the measurement or after it.
NOT_IDENTITY = {
    *("out_dir", "bootstrap", "minutes"),
    *("regression_prompts", "regression_tokens", "diversity_samples", "diversity_tokens"),
}


@dataclass(frozen=True, slots=True)
class LiveRecord:
    """Lines of `path`, each a generation with its rounds, and the identity of the run that measured them."""

    path: Path
    identity: dict[str, Any]

    @classmethod
    def open(cls, path: Path, pair: Pair, params: LiveParams) -> LiveRecord:
        """Continue an unfinished record of the same parameters, code and machine, else start an empty one.

        An unfinished record of another run is renamed and a truncated last line is dropped; a line is printed for
        each. The record of a finished run is removed.
        """
        record = cls(path, _identity(pair, params))
        unfinished = _unfinished(path)
        differing = record._differing() if unfinished.is_file() else []
        if differing and path.is_file():
            others = (path.with_name(f"{path.stem}.other-{number}{path.suffix}") for number in itertools.count(1))
            kept = path.replace(next(other for other in others if not other.exists()))
            names = ", ".join(differing)
            print(f"{path.name} is from a run with another {names}; it is renamed to {kept.name}.", flush=True)
        if differing or not unfinished.is_file():
            path.unlink(missing_ok=True)
            record._cost.unlink(missing_ok=True)
        elif path.is_file() and len(whole := record._whole_lines()) < path.stat().st_size:
            with path.open("r+b") as file:
                file.truncate(len(whole))
            print(f"the last line of {path.name} was truncated and is measured again.", flush=True)
        write_text(unfinished, json.dumps(record.identity, indent=1, ensure_ascii=False) + "\n")
        return record

    def append(self, row: dict[str, object]) -> None:
        """Add a generation and wait until it is on disk. Raises RecordError."""
        append_jsonl(self.path, row)

    def rows(self) -> list[dict[str, Any]]:
        """All whole lines, in the order of measurement. Raises RecordError for a line that is not JSON."""
        rows = []
        for number, line in enumerate(self._whole_lines().splitlines(), start=1):
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise RecordError(
                    f"line {number} of {self.path} is not JSON ({error}); move the file away to measure afresh."
                ) from error
        return rows

    def round_cost(self, measure: Callable[[], RoundCost]) -> RoundCost:
        """The cost of a round, measured once: a record that is continued keeps the cost that it started with.

        Raises RecordError for a file that does not hold a cost.
        """
        if not self._cost.is_file():
            write_text(self._cost, json.dumps(dataclasses.asdict(measure())) + "\n")
        try:
            found = json.loads(self._cost.read_text(encoding="utf-8"))
            return RoundCost(tuple(found["budgets"]), tuple(found["ms"]), found["baseline_ms"])
        except (ValueError, KeyError, TypeError) as error:
            raise RecordError(
                f"{self._cost} does not hold the cost of a round ({error}); remove it to measure afresh."
            ) from error

    @property
    def _cost(self) -> Path:
        return self.path.with_suffix(".cost.json")

    def _whole_lines(self) -> bytes:
        """The file up to its last line break; a run that is stopped while it writes leaves a truncated line."""
        content = self.path.read_bytes() if self.path.is_file() else b""
        return content[: content.rfind(b"\n") + 1]

    def _differing(self) -> list[str]:
        try:
            found = json.loads(_unfinished(self.path).read_text(encoding="utf-8"))
        except ValueError:
            return ["description (it cannot be read)"]
        return [name for name, value in self.identity.items() if found.get(name) != value]


def close_record(path: Path) -> None:
    """Mark the run as finished: the next one measures afresh."""
    _unfinished(path).unlink(missing_ok=True)


def code_digest() -> str:
    """Sha256 of the package's modules without the workbook's: the code that decodes."""
    package = Path(ddtree.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package)
        if name.parts[0] != "workbook":
            digest.update(f"{name.as_posix()}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _unfinished(path: Path) -> Path:
    return path.with_suffix(".unfinished.json")


def _identity(pair: Pair, params: LiveParams) -> dict[str, Any]:
    """Everything that the measurement depends on, as JSON gives it back."""
    machine = environment()
    packages = machine["packages"]
    identity = {
        **{name: value for name, value in params.to_plain().items() if name not in NOT_IDENTITY},
        "pair": pair.facts,
        "machine": [machine["cpu"], machine["gpu"], machine["torch_threads"]],
        "versions": [packages[name] for name in ("ddtree", "torch", "transformers", "dflash")],
        "code": code_digest(),
    }
    plain: dict[str, Any] = json.loads(json.dumps(identity))
    return plain
