"""A sweep's folder is read as far as it got: what is measured, what failed and why, and what may be compared."""

import json
from pathlib import Path

import pandas as pd
import pytest
from ddtree.workbook.params import LiveParams
from ddtree.workbook.records import read_result, write_result
from ddtree.workbook.sweep.results import Sweep, SweepFolderError, group_names, read_sweep
from sweep_folder import FAILURE, cell_id, live_params, write_sweep
from wording import names, tells


def statuses(sweep: Sweep) -> dict[str, tuple[str, str]]:
    return {cell.id: (cell.status, cell.reason) for cell in sweep.cells if cell.status != "measured"}


def test_a_whole_sweep_has_every_round_of_every_cell(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, (0.0, 1.0), (4, "auto"))
    sweep = read_sweep(folder)
    assert tells(sweep.progress, "4 4")
    assert sweep.groups == ["every run"]
    assert sweep.missing("every run") == {}
    files = [pd.read_parquet(path) for path in folder.glob("cells/*/rounds.parquet")]
    assert len(sweep.rounds) == sum(map(len, files))
    assert sweep.rounds["emitted"].sum() == 4 * 3 * 4 * 48
    assert set(sweep.rounds["label"]) == {"autoregressive", "chain", "tree 4", "tree auto"}


def test_cells_without_a_result_are_counted_with_their_reason(tmp_path: Path) -> None:
    gone, broken = cell_id(1.0, 4), cell_id(0.0, 16)
    sweep = read_sweep(write_sweep(tmp_path, (0.0, 1.0), (4, 16), not_run=[gone], failed=[broken]))
    assert tells(sweep.progress, f"2 4 1 failed {broken} 1 not run")
    assert statuses(sweep) == {gone: ("not run", "not run"), broken: ("failed", FAILURE)}
    assert sweep.missing("every run") == {(0.0, "tree 16"): f"{broken}: {FAILURE}", (1.0, "tree 4"): f"{gone}: not run"}
    assert set(sweep.rounds["cell"]) == {cell_id(0.0, 4), cell_id(1.0, 16)}


def test_a_chain_that_another_cell_measured_is_not_missing(tmp_path: Path) -> None:
    whole = write_sweep(tmp_path, (0.0, 1.0), (4,), not_run=[cell_id(1.0, 4)])
    assert set(read_sweep(whole).missing("every run")) == {(1.0, "tree 4"), (1.0, "chain")}


def test_what_the_runner_says_of_a_failure_comes_first(tmp_path: Path) -> None:
    name = cell_id(1.0, 4)
    folder = write_sweep(tmp_path, (0.0, 1.0), (4,), failed=[name])
    (folder / "cells" / name / "failure.json").write_text(json.dumps({"failure": "it ran out of time"}))
    assert statuses(read_sweep(folder)) == {name: ("failed", "it ran out of time")}


def test_the_first_error_in_the_notebook_serves_where_nothing_else_does(tmp_path: Path) -> None:
    name = cell_id(1.0, 4)
    folder = write_sweep(tmp_path, (0.0, 1.0), (4,), failed=[name])
    executed = folder / "cells" / name / "executed.ipynb"
    executed.write_text(json.dumps(json.loads(executed.read_text()) | {"metadata": {}}))
    assert statuses(read_sweep(folder)) == {name: ("failed", "OutOfMemoryError: no room")}


@pytest.mark.parametrize("text", ['{"cells": [], "metadata": {}}', '{"cells": [', ""])
def test_a_cell_that_runs_is_unfinished(tmp_path: Path, text: str) -> None:
    name = cell_id(1.0, 4)
    folder = write_sweep(tmp_path, (0.0, 1.0), (4,), failed=[name])
    (folder / "cells" / name / "executed.ipynb").write_text(text)
    sweep = read_sweep(folder)
    assert tells(sweep.progress, f"1 2 1 unfinished {name}")


def test_a_result_that_calls_itself_incomplete_is_kept_and_said(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, (0.0,), (4,))
    cell = folder / "cells" / cell_id(0.0, 4)
    metrics = read_result(cell)["metrics"] | {"complete": False, "prompts_done": 2}
    write_result(cell, notebook="03_live", params=LiveParams(), metrics=metrics, wall_s=1.0)
    sweep = read_sweep(folder)
    assert statuses(sweep) == {cell_id(0.0, 4): ("in part", "2 of 4 prompts")}
    assert len(sweep.rounds) > 0


def test_filters_keep_cells_of_one_cap_and_draft_temperature(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, (0.0,), (4,), topk_caps=(2, 8))
    assert read_sweep(folder).groups == ["top-k cap 2", "top-k cap 8"]
    assert [cell.id for cell in read_sweep(folder, topk_cap=8).cells] == [cell_id(0.0, 4, 8)]
    assert read_sweep(folder, topk_cap=8, draft_temperature=1.0).groups == ["every run"]
    with pytest.raises(SweepFolderError, match=names("topk_cap 3 topk_cap 2 8")):
        read_sweep(folder, topk_cap=3)
    with pytest.raises(SweepFolderError, match=names("draft_temperature match 1.0")):
        read_sweep(folder, draft_temperature="match")


def test_the_setting_with_most_measured_cells_comes_first(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, (0.0, 1.0), (4,), topk_caps=(2, 8), not_run=[cell_id(1.0, 4, 2)])
    assert read_sweep(folder).groups == ["top-k cap 8", "top-k cap 2"]


def test_groups_differ_in_all_but_temperature_budget_and_seed() -> None:
    cells = [
        live_params(temperatures=[0.0], budget=4, seed=0, draft_temperature="match"),
        live_params(temperatures=[1.0], budget="auto", seed=1, draft_temperature="match"),
        live_params(
            temperatures=[1.0], budget=4, draft_temperature=0.5, model="a name that is far too long for a title"
        ),
    ]
    first, second, third = group_names(cells)
    assert first == second == "model smollm2-135m, draft T match"
    assert third == "model no. 2, draft T 0.5"


def test_further_budgets_are_planned_at_the_highest_temperature(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, (0.0, 1.0), (4,), not_run=[cell_id(1.0, 4)])
    plan = json.loads((folder / "sweep.json").read_text())
    for cell in plan["cells"]:
        cell["params"] |= {"extra_budgets": [8]} | (
            {"temperatures": [0.5, 1.0]} if cell["id"] == cell_id(1.0, 4) else {}
        )
    (folder / "sweep.json").write_text(json.dumps(plan))
    assert set(read_sweep(folder).missing("every run")) == {
        (0.5, "chain"), (0.5, "tree 4"), (1.0, "chain"), (1.0, "tree 4"), (1.0, "tree 8"),
    }  # fmt: skip


def test_folders_that_are_no_sweep_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SweepFolderError, match=names("sweep.json")):
        read_sweep(tmp_path)
    (tmp_path / "sweep.json").write_text("{")
    with pytest.raises(SweepFolderError, match=names("sweep.json")):
        read_sweep(tmp_path)


def test_sweeps_of_another_notebook_or_without_a_parameter_are_refused(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, (0.0,), (4,))
    plan = json.loads((folder / "sweep.json").read_text())
    (folder / "sweep.json").write_text(json.dumps(plan | {"notebook": "01_tree"}))
    with pytest.raises(SweepFolderError, match=names("01_tree 03_live")):
        read_sweep(folder)
    del plan["cells"][0]["params"]["topk_cap"]
    (folder / "sweep.json").write_text(json.dumps(plan))
    with pytest.raises(SweepFolderError, match=names("topk_cap")):
        read_sweep(folder)


def test_a_sweep_with_nothing_measured_is_refused(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, (0.0,), (4,), not_run=[cell_id(0.0, 4)])
    with pytest.raises(SweepFolderError, match=names("1")):
        read_sweep(folder)


def test_rounds_of_another_version_are_refused(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, (0.0,), (4,))
    path = folder / "cells" / cell_id(0.0, 4) / "rounds.parquet"
    rounds = pd.read_parquet(path)
    rounds.drop(columns="entropy").to_parquet(path)
    with pytest.raises(SweepFolderError, match=names("entropy")):
        read_sweep(folder)
    rounds[rounds["strategy"] != "autoregressive"].to_parquet(path)
    with pytest.raises(SweepFolderError, match=names("autoregressive")):
        read_sweep(folder)
    path.unlink()
    with pytest.raises(SweepFolderError, match=names("rounds.parquet")):
        read_sweep(folder)
