"""A sweep file is checked whole before anything starts; a cell's name follows its parameters."""

from pathlib import Path

import pytest
from ddtree.workbook.params import PARAMS, LiveParams
from ddtree.workbook.paths import project_root
from ddtree.workbook.records import RecordError
from ddtree.workbook.sweep.grid import DIGEST_LENGTH, Plan, SweepFileError, digest_of, plan_of, read_grid, read_plan
from pydantic import ValidationInfo, field_validator

GRID = "fixed: {top_k: 40, prompts: [Hello.]}\ngrid:\n  temperatures: [0.0, [0.6, 1.0]]\n  budget: [4, 16, 32]\n"


def problems_of(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    with pytest.raises(SweepFileError) as raised:
        read_grid(path)
    return raised.value.problems


def plan(tmp_path: Path, text: str) -> Plan:
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    return plan_of(read_grid(path), file="grid.yaml", folder=tmp_path / "sweep")


def test_every_combination_is_a_cell_and_a_single_value_is_a_list_of_it_alone(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(GRID)
    grid = read_grid(path)
    assert grid.notebook == "03_live"
    assert grid.axes == {"temperatures": [0.0, [0.6, 1.0]], "budget": [4, 16, 32]}
    made = [(p.params.temperatures, p.params.budget) for p in grid.points if isinstance(p.params, LiveParams)]
    assert made == [(t, b) for t in ([0.0], [0.6, 1.0]) for b in (4, 16, 32)]
    assert {p.params.top_k for p in grid.points if isinstance(p.params, LiveParams)} == {40}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("fixd: {}\ngrid: {seed: [0]}", "unknown key 'fixd'; did you mean 'fixed'?"),
        ("fixed: {}", "grid is missing, but a mapping"),
        ("grid: {}", "grid is {} (mapping), but a mapping of parameters to lists"),
        ("grid: [budget]", "grid is ['budget'] (list)"),
        ("notebook: 03_life\ngrid: {budget: [4]}", "notebook is '03_life', which has no checked parameters"),
        ("grid: {budget: []}", "grid: budget has no values"),
        ("grid: {budget: 16}", "grid: budget is 16 (whole number), but a list of values is needed"),
        ("grid: {budget: [4, 8, 4]}", "grid: budget holds 4 more than once"),
        ("grid: {temperatures: [0, [0.0]]}", "grid: temperatures holds [0.0] more than once"),
        ("grid: {budget: [4, 2000]}", "grid: budget is 2000 (whole number), but"),
        ("grid: {budget: [4, null]}", "grid: budget is None (null), but"),
        ("grid: {temperatures: [0.5, 11.0]}", "grid: temperatures[0] is 11.0"),
        ("grid: {budgte: [4, 8]}", "grid: unknown parameter 'budgte'; did you mean 'budget'?"),
        ("grid: {draft_temperature: [0.0]}", "grid: draft_temperature is 0.0"),
        ("fixed: {budget: -1}\ngrid: {seed: [0]}", "fixed: budget is -1"),
        ("fixed: 3\ngrid: {seed: [0]}", "fixed is 3 (whole number), but a mapping"),
        ("fixed:\ngrid: {seed: [0]}", "fixed is None (null), but a mapping"),
        ("fixed: {seed: 1}\ngrid: {seed: [0]}", "seed is under fixed and under grid"),
        ("grid: {threads: [1, 2]}", "grid: threads cannot be given, because the sweep shares the cores"),
        ("fixed: {out_dir: here}\ngrid: {seed: [0]}", "fixed: out_dir cannot be given, because each cell has its own"),
        ("max_cells: many\ngrid: {seed: [0]}", "max_cells is 'many' (text), but a whole number from 1"),
        (
            f"grid: {{seed: {list(range(60))}, budget: [4, 8]}}",
            "the grid has 120 cells (60 seed x 2 budget), more than",
        ),
        ("max_cells: 2\ngrid: {seed: [0, 1, 2]}", "has 3 cells (3 seed), more than 2; write max_cells: 3"),
        ("grid: {seed: [0], seed: [1]}", "seed is given more than once"),
    ],
)
def test_a_wrong_file_is_one_sentence_that_names_axis_and_value(tmp_path: Path, text: str, sentence: str) -> None:
    (found,) = problems_of(tmp_path, text)
    assert sentence in found


def test_all_problems_come_at_once(tmp_path: Path) -> None:
    text = "extra: 1\nfixed: {topk: 3, threads: 2}\nmax_cells: 0\ngrid: {budget: [-1, x], temperatures: [-0.5]}"
    found = problems_of(tmp_path, text)
    for part in (
        "'extra'",
        "'topk'",
        "threads",
        "max_cells is 0",
        "budget is -1",
        "budget is 'x'",
        "temperatures[0] is -0.5",
    ):
        assert sum(part in sentence for sentence in found) == 1, part
    assert len(found) == 7


def test_what_is_wrong_only_in_combination_names_the_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Bound(LiveParams):
        @field_validator("topk_cap")
        @classmethod
        def _within_budget(cls, value: int, info: ValidationInfo) -> int:
            if value > info.data["budget"]:
                raise ValueError("more children than nodes")
            return value

    monkeypatch.setitem(PARAMS, "03_live", Bound)
    (found,) = problems_of(tmp_path, "grid: {budget: [4, 16], topk_cap: [2, 8], seed: [0, 1]}")
    assert found.startswith("the cell budget 4, topk_cap 8, seed 0 (and 1 more): topk_cap is 8")
    assert "more children than nodes" in found


def test_a_large_grid_that_says_so_is_read(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(f"max_cells: 120\ngrid: {{seed: {list(range(60))}, budget: [4, 8]}}")
    assert len(read_grid(path).points) == 120


def test_a_cell_is_named_by_its_values_and_a_digest_of_all_parameters(tmp_path: Path) -> None:
    before = [cell.id for cell in plan(tmp_path, GRID).cells]
    assert before[0].startswith("temperatures-0.0_budget-4_")
    assert before[3].startswith("temperatures-0.6-1.0_budget-4_")
    assert len(set(before)) == 6
    changed = [cell.id for cell in plan(tmp_path, GRID.replace("40", "41")).cells]
    assert not set(before) & set(changed)
    assert [name[:-DIGEST_LENGTH] for name in before] == [name[:-DIGEST_LENGTH] for name in changed]


def test_a_cell_keeps_its_name_in_a_larger_grid(tmp_path: Path) -> None:
    before = [cell.id for cell in plan(tmp_path, GRID).cells]
    larger = [cell.id for cell in plan(tmp_path, GRID.replace("[4, 16, 32]", "[2, 4, 16, 32]")).cells]
    assert set(before) < set(larger)
    assert len(larger) == 8


def test_a_cell_on_disk_keeps_its_name_when_an_axis_is_added(tmp_path: Path) -> None:
    (first, *_) = [cell.id for cell in plan(tmp_path, GRID).cells]
    (tmp_path / "sweep" / "cells" / first).mkdir(parents=True)
    names = [cell.id for cell in plan(tmp_path, GRID + "  seed: [0, 1]\n").cells]
    assert names[0] == first  # seed 0 is the default, so the parameters are the same
    assert names[1].startswith("temperatures-0.0_budget-4_seed-1_")


def test_threads_and_folder_are_no_part_of_a_digest() -> None:
    params = LiveParams.from_mapping({})
    same = LiveParams.from_mapping({"threads": 7, "out_dir": "elsewhere"})
    assert digest_of("03_live", params) == digest_of("03_live", same)
    assert digest_of("03_live", params) != digest_of("01_tree", params)
    assert digest_of("03_live", params) != digest_of("03_live", LiveParams.from_mapping({"seed": 1}))


def test_names_are_safe_for_a_file_system(tmp_path: Path) -> None:
    text = f"grid: {{model: ['org/a b', '../..', '{'x' * 300}'], prompts: ['What? \"Why\"; rm -rf $HOME', 'ä']}}"
    for cell in plan(tmp_path, text).cells:
        assert set(cell.id) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_")
        assert not cell.id.startswith((".", "-"))
        assert len(cell.id) <= 200


def test_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = plan(tmp_path, GRID)
    assert read_plan(written.write(tmp_path)) == written
    assert written.cells[0].params["budget"] == 4
    assert written.cells[0].params["out_dir"].endswith(f"sweep/cells/{written.cells[0].id}")
    assert "threads" not in written.cells[0].params


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[]", "is not that of a sweep"),
        ('{"schema": 9}', "has schema 9, but this version reads 1"),
        (None, "cannot be read"),
    ],
)
def test_a_plan_that_is_none_is_named(tmp_path: Path, text: str | None, sentence: str) -> None:
    path = tmp_path / "sweep.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(RecordError, match=sentence):
        read_plan(path)


@pytest.mark.parametrize(
    "path", sorted((project_root() / "params" / "sweeps").glob("*.yaml")), ids=lambda path: path.stem
)
def test_shipped_sweeps_are_right(path: Path) -> None:
    assert read_grid(path).points
