"""What a cell's folder says of its end, and how a running sweep counts it."""

import json
from pathlib import Path

import pytest
from ddtree.workbook.records import RecordError
from ddtree.workbook.sweep.cell import failure_of, is_done, write_failure
from ddtree.workbook.sweep.executor import CELL_LOG, SILENT, Count, Tally
from ddtree.workbook.sweep.grid import Cell, Plan, cell_folder
from wording import names

NAMES = ["a", "b", "c", "d"]
PLAN = Plan("few.yaml", "01_tree", {}, [Cell(name, {}) for name in NAMES])


def finish(folder: Path, name: str, **metrics: object) -> None:
    place = cell_folder(folder, name)
    place.mkdir(parents=True, exist_ok=True)
    (place / "result.json").write_text(json.dumps({"schema": 1, "metrics": metrics}))


def start(folder: Path, name: str) -> None:
    place = cell_folder(folder, name)
    place.mkdir(parents=True, exist_ok=True)
    (place / CELL_LOG).touch()


def fail(folder: Path, name: str, reason: str) -> None:
    start(folder, name)
    write_failure(cell_folder(folder, name), reason)


def test_a_result_that_calls_itself_incomplete_is_none(tmp_path: Path) -> None:
    finish(tmp_path, "a", complete=False)
    finish(tmp_path, "b", complete=True)
    finish(tmp_path, "c")
    assert [is_done(cell_folder(tmp_path, name)) for name in NAMES] == [False, True, True, False]


def test_a_failure_takes_the_partial_result_away(tmp_path: Path) -> None:
    finish(tmp_path, "a", complete=False)
    assert failure_of(cell_folder(tmp_path, "a")) is None
    fail(tmp_path, "a", "as asked")
    assert failure_of(cell_folder(tmp_path, "a")) == "as asked"
    assert not (cell_folder(tmp_path, "a") / "result.json").exists()


def test_a_broken_failure_is_named(tmp_path: Path) -> None:
    (tmp_path / "failure.json").write_text("{")
    with pytest.raises(RecordError, match=names("failure.json")):
        failure_of(tmp_path)


def test_cells_are_counted_as_they_end(tmp_path: Path) -> None:
    finish(tmp_path, "a")
    fail(tmp_path, "b", "of an earlier call")
    tally = Tally(PLAN, tmp_path)
    assert tally.todo == ["b", "c", "d"]
    tally.begin()
    assert tally.look() == Count(total=4, ended=1, failed=0, fresh=0)
    fail(tmp_path, "c", "as asked")
    finish(tmp_path, "d")
    assert tally.look() == Count(total=4, ended=3, failed=1, fresh=2)
    assert tally.failures == {"c": "as asked"}
    assert tally.end() == ["b"]


def test_what_fails_after_a_stop_was_interrupted_and_waits(tmp_path: Path) -> None:
    tally = Tally(PLAN, tmp_path)
    tally.begin()
    fail(tmp_path, "a", "before the stop")
    tally.stop()
    fail(tmp_path, "b", "it was interrupted in cell 3")
    finish(tmp_path, "c")
    start(tmp_path, "d")
    assert tally.look() == Count(total=4, ended=2, failed=1, fresh=2)
    assert tally.end() == ["b", "d"]
    assert tally.failures == {"a": "before the stop"}
    assert failure_of(cell_folder(tmp_path, "a")) == "before the stop"
    assert failure_of(cell_folder(tmp_path, "b")) is None


def test_a_cell_that_began_and_says_nothing_has_failed(tmp_path: Path) -> None:
    tally = Tally(PLAN, tmp_path)
    tally.begin()
    start(tmp_path, "b")
    assert tally.end() == ["a", "c", "d"]
    assert tally.failures == {"b": SILENT}
    assert failure_of(cell_folder(tmp_path, "b")) == SILENT
