"""A result.json of another form is refused with every field that is wrong, whatever else reads it."""

from pathlib import Path

import pytest
from ddtree.workbook.params import TreeParams
from ddtree.workbook.records import RecordError, write_result
from ddtree.workbook.report.run_info import RunRecord, read_record
from run_folders import MACHINE, record, write_record
from wording import tells


def test_what_a_run_writes_is_read(tmp_path: Path) -> None:
    params = TreeParams.from_mapping({"budget": 5})
    path = write_result(tmp_path, notebook="01_tree", params=params, metrics={"tree_size": 6}, wall_s=2.5)
    found = read_record(path, RunRecord)
    assert (found.notebook, found.wall_s, found.metrics) == ("01_tree", 2.5, {"tree_size": 6})
    assert found.params == params.to_plain()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"params": []}, "params: input should be a valid dictionary"),
        ({"finished_utc": "yesterday"}, "finished_utc: input should be a valid datetime"),
        ({"wall_s": -1.0}, "wall_s: input should be greater than or equal to 0"),
        ({"environment": {**MACHINE, "cpu": None}}, "environment.cpu: input should be a valid string"),
        ({"schema": 2}, "schema 2 1"),
    ],
)
def test_wrong_field_is_named(tmp_path: Path, changes: dict[str, object], reason: str) -> None:
    folder = write_record(tmp_path, record(**changes))
    with pytest.raises(RecordError) as refused:
        read_record(folder / "result.json", RunRecord)
    assert tells(refused.value, reason)
    assert "result.json" in str(refused.value)


def test_moments_are_in_utc(tmp_path: Path) -> None:
    folder = write_record(tmp_path, record(finished_utc="2026-03-01T12:00:00+02:00"))
    assert read_record(folder / "result.json", RunRecord).finished_utc.strftime("%H %Z") == "10 UTC"


@pytest.mark.parametrize(
    ("revision", "short"),
    [("0123456789abcdef", "0123456789"), ("0123456789abcdef-dirty", "0123456789 with local changes"), (None, "")],
)
def test_revision_is_short(tmp_path: Path, revision: str | None, short: str) -> None:
    folder = write_record(tmp_path, record(git_revision=revision))
    assert read_record(folder / "result.json", RunRecord).revision == short


def test_machine_is_its_gpu_if_it_has_one(tmp_path: Path) -> None:
    found = read_record(write_record(tmp_path, record()) / "result.json", RunRecord)
    assert found.environment.name == "Some CPU, 2 cores"
    with_gpu = record(environment={**MACHINE, "gpu": "NVIDIA H200"})
    found = read_record(write_record(tmp_path, with_gpu) / "result.json", RunRecord)
    assert found.environment.name == "NVIDIA H200"
