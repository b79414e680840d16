"""Read a sweep's folder: its plan, the status of every cell, and every round of the measured ones.

A cell adds rounds if and only if it has a result.json; every other cell has a status and a reason."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from ddtree.workbook.records import EXECUTED_NAME, RESULT_NAME, RecordError, read_result
from ddtree.workbook.stats import STAGE_COLUMNS
from ddtree.workbook.sweep.cell import failure_of
from ddtree.workbook.sweep.grid import PLAN_NAME, Cell, cell_folder, read_plan

Status = Literal["measured", "in part", "failed", "unfinished", "not run"]
STATUSES: tuple[Status, ...] = ("measured", "in part", "failed", "unfinished", "not run")
ROUNDS_NAME = "rounds.parquet"
NOTEBOOK = "03_live"
NEEDED = ("temperatures", "budget", "topk_cap")
COLUMNS = ["temperature", "label", "strategy", "budget", "prompt", "accepted", "emitted", "entropy", "offered"]
WITHIN = {"temperatures", "budget", "extra_budgets", "seed", "out_dir"}  # may differ inside a group
SHORT = {"topk_cap": "top-k cap", "draft_temperature": "draft T"}
LONGEST = 24  # characters of a value that a name can hold
ONLY = "every run"  # the name of the only group


class SweepFolderError(ValueError):
    """The folder is not a sweep, or cannot be read; the message names the file and what would be right."""


@dataclass(frozen=True, slots=True)
class CellState:
    """One run of the sweep: its parameters, the group it belongs to, and what became of it."""

    id: str
    params: Mapping[str, Any]
    group: str
    status: Status
    reason: str  # "" if it was measured whole

    @property
    def has_rounds(self) -> bool:
        return self.status in ("measured", "in part")

    def planned(self) -> list[tuple[float, str]]:
        """Temperature and label of each of its drafting decoders; further budgets only at the highest temperature."""
        values = [float(t) for t in self.params["temperatures"]]
        found = []
        for temperature in values:
            further = self.params.get("extra_budgets", []) if temperature == max(values) else []
            budgets = dict.fromkeys([self.params["budget"], *further])
            found += [(temperature, "chain"), *((temperature, f"tree {budget}") for budget in budgets)]
        return found


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep as far as it got. `rounds` is the live `rounds` frame of every measured cell, with `cell` and `slice`.

    A group is what may be compared along temperature and budget: its cells are equal in every other parameter but the
    seed. Labels are "autoregressive", "chain", "tree 16", "tree auto": the top-k cap is that of the group.
    """

    folder: Path
    cells: tuple[CellState, ...]
    rounds: pd.DataFrame

    @property
    def groups(self) -> list[str]:
        """Groups with a measured cell, the one with most of them first, ties in the order of the plan."""
        counts = Counter(cell.group for cell in self.cells if cell.has_rounds)
        planned = dict.fromkeys(cell.group for cell in self.cells)
        return sorted((name for name in planned if counts[name]), key=lambda name: -counts[name])

    @property
    def progress(self) -> str:
        """ "31 of 48 cells measured; 2 failed: t1-b8, t1-b16; 15 not run" """
        ids = {status: [cell.id for cell in self.cells if cell.status == status] for status in STATUSES}
        said = [f"{len(ids['measured'])} of {len(self.cells)} cells measured"]
        said += [f"{len(ids[status])} {status}: {', '.join(ids[status])}" for status in STATUSES[1:4] if ids[status]]
        return "; ".join([*said, *([f"{len(ids['not run'])} not run"] if ids["not run"] else [])])

    def missing(self, group: str) -> dict[tuple[float, str], str]:
        """Temperature and label of what the plan has in a group and no cell measured, to the reason."""
        mine = [cell for cell in self.cells if cell.group == group]
        there = {key for cell in mine if cell.has_rounds for key in cell.planned()}
        reasons = {key: f"{cell.id}: {cell.reason}" for cell in mine if not cell.has_rounds for key in cell.planned()}
        return {key: reason for key, reason in reasons.items() if key not in there}


def read_sweep(folder: Path, *, topk_cap: int = 0, draft_temperature: float | str = "all") -> Sweep:
    """The sweep in `folder`, or its cells of one top-k cap (0: every one) and draft temperature ("all": every one).

    Raises SweepFolderError for a folder that is not a sweep, a filter that leaves no cell, a sweep in which nothing is
    measured yet, and rounds that this version cannot read; RecordError for a record that cannot be read.
    """
    kept = _filtered(_planned_cells(folder), topk_cap=topk_cap, draft_temperature=draft_temperature)
    names = group_names([cell.params for cell in kept])
    cells, frames = [], []
    for planned, name in zip(kept, names, strict=True):
        place = cell_folder(folder, planned.id)
        cell = CellState(planned.id, planned.params, name, *_cell_status(place))
        cells.append(cell)
        if cell.has_rounds:
            frames.append(_rounds(place / ROUNDS_NAME).assign(cell=cell.id, slice=name))
    if not cells:
        raise SweepFolderError(f"The plan {folder / PLAN_NAME} has no cells.")
    if not frames:
        count = f"{len(cells)} {'is' if len(cells) == 1 else 'are'} planned"
        raise SweepFolderError(f"No cell of the sweep {folder} is measured yet ({count}); run the sweep first.")
    return Sweep(folder, tuple(cells), pd.concat(frames, ignore_index=True))


def group_names(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """One name for each cell's parameters, equal for cells of one group: "top-k cap 4, draft T match"."""
    names = dict.fromkeys(name for params in cells for name in params if name not in WITHIN)
    values = {name: _distinct([params.get(name) for params in cells]) for name in names}
    apart = [name for name in names if len(values[name]) > 1]
    return [", ".join(_label(name, params.get(name), values[name]) for name in apart) or ONLY for params in cells]


def _planned_cells(folder: Path) -> list[Cell]:
    path = folder / PLAN_NAME
    if not path.is_file():
        raise SweepFolderError(f"{folder} is not a sweep: there is no {PLAN_NAME} in it; sweeps are in outputs/sweeps.")
    try:
        plan = read_plan(path)
    except RecordError as error:
        raise SweepFolderError(str(error)) from error
    if plan.notebook != NOTEBOOK:
        raise SweepFolderError(f"{path} is a sweep of {plan.notebook}, but only sweeps of {NOTEBOOK} can be read.")
    for cell in plan.cells:
        if lacking := [name for name in NEEDED if name not in cell.params]:
            raise SweepFolderError(f"{path}: the cell {cell.id} lacks the parameters {', '.join(lacking)}.")
    return plan.cells


def _filtered(cells: list[Cell], *, topk_cap: int, draft_temperature: float | str) -> list[Cell]:
    wanted: dict[str, object] = {"topk_cap": topk_cap} if topk_cap else {}
    wanted |= {"draft_temperature": draft_temperature} if draft_temperature != "all" else {}
    kept = [cell for cell in cells if all(cell.params.get(name) == value for name, value in wanted.items())]
    if cells and not kept:
        asked = ", ".join(f"{name} {value}" for name, value in wanted.items())
        values = {name: dict.fromkeys(str(cell.params.get(name)) for cell in cells) for name in wanted}
        there = "; ".join(f"{name} is {', '.join(found)}" for name, found in values.items())
        raise SweepFolderError(f"No cell of the sweep has {asked}; in this sweep {there}.")
    return kept


def _cell_status(folder: Path) -> tuple[Status, str]:
    if (folder / RESULT_NAME).is_file():
        metrics = read_result(folder)["metrics"]
        if metrics.get("complete", True):
            return "measured", ""
        return "in part", f"{metrics['prompts_done']} of {metrics['prompts_planned']} prompts"
    executed = folder / EXECUTED_NAME
    started = executed.is_file()
    if failure := failure_of(folder) or (_failure(executed) if started else ""):
        return "failed", failure
    return ("unfinished", "it is running, or ended without a reason") if started else ("not run", "not run")


def _failure(executed: Path) -> str:
    """What `ddtree run` wrote of a failure, else the first error in the notebook, else ""."""
    try:
        notebook = json.loads(executed.read_text(encoding="utf-8"))
    except ValueError:  # papermill is writing it
        return ""
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    errors = [f"{output['ename']}: {output['evalue']}" for output in outputs if output["output_type"] == "error"]
    return str(notebook["metadata"].get("ddtree", {}).get("failure") or next(iter(errors), ""))


def _rounds(path: Path) -> pd.DataFrame:
    try:
        rounds = pd.read_parquet(path)
    except OSError as error:
        raise SweepFolderError(f"The rounds {path} cannot be read: {error}.") from error
    if missing := [name for name in [*COLUMNS, *STAGE_COLUMNS] if name not in rounds]:
        raise SweepFolderError(
            f"{path} lacks the columns {', '.join(missing)}; it was written by another version; run the cell again."
        )
    if "autoregressive" not in set(rounds["strategy"]):
        raise SweepFolderError(f"{path} has no autoregressive rounds, which every speed-up is measured against.")
    return rounds[[*COLUMNS, *STAGE_COLUMNS]].assign(label=rounds["label"].str.partition("/")[0])


def _distinct(values: list[Any]) -> list[Any]:
    return [value for index, value in enumerate(values) if value not in values[:index]]  # lists have no hash


def _label(name: str, value: Any, values: list[Any]) -> str:
    text = f"{value:g}" if isinstance(value, int | float) else str(value)
    short = text if len(text) <= LONGEST else f"no. {values.index(value) + 1}"
    return f"{SHORT.get(name, name)} {short}"
