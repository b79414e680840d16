"""Records are whole or absent, hold plain numbers, and say where they could not be written."""

import errno
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ddtree.workbook import records
from ddtree.workbook.params import TreeParams
from wording import names

PARAMS = TreeParams.from_mapping({"seed": 7})


def write(out_dir: Path, **metrics: Any) -> Path:
    return records.write_result(out_dir, notebook="01_tree", params=PARAMS, metrics=metrics, wall_s=1.5)


def test_result_comes_back_as_written(tmp_path: Path) -> None:
    path = write(tmp_path / "new" / "folder", speedup=np.float32(1.5), counts=np.arange(3), absent=None)
    result = records.read_result(path)
    assert result == records.read_result(path.parent)
    assert result["metrics"] == {"speedup": 1.5, "counts": [0, 1, 2], "absent": None}
    assert (result["schema"], result["seed"], result["wall_s"], result["notebook"]) == (1, 7, 1.5, "01_tree")
    assert result["params"] == PARAMS.to_plain()
    assert result["peak_rss_mib"] > 10
    assert result["finished_utc"].endswith("+00:00")


@pytest.mark.parametrize("value", [float("nan"), np.float32("inf"), [1.0, float("-inf")]])
def test_not_a_number_is_refused_and_located(tmp_path: Path, value: Any) -> None:
    with pytest.raises(ValueError, match=names("result.metrics.inner.gap None")):
        write(tmp_path, inner={"gap": value})
    assert list(tmp_path.iterdir()) == []


def test_strange_object_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=names("result.metrics.path PosixPath")):
        write(tmp_path, path=tmp_path)


def test_broken_write_leaves_the_old_result_and_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, speedup=1.0)

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(records.RecordError, match=names(f"{tmp_path} No space left on device")):
        write(tmp_path, speedup=2.0)
    assert records.read_result(path)["metrics"] == {"speedup": 1.0}
    assert [found.name for found in tmp_path.iterdir()] == ["result.json"]


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(records.RecordError, match=names("file/out")):
        write(tmp_path / "file" / "out")
    with pytest.raises(records.RecordError, match=names("file")):
        records.append_jsonl(tmp_path / "file" / "lines.jsonl", {})


@pytest.mark.parametrize(("text", "sentence"), [("{", "JSON"), ('{"schema": 99}', "schema 99"), ("[]", "schema None")])
def test_unreadable_result_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(records.RecordError, match=names(sentence)):
        records.read_result(tmp_path)


def test_missing_result_is_named(tmp_path: Path) -> None:
    with pytest.raises(records.RecordError, match=names("result.json")):
        records.read_result(tmp_path)


def test_traces_come_back(tmp_path: Path) -> None:
    frame = pd.DataFrame({"step": [0, 1], "accepted": [3, 2]})
    path = records.write_traces(tmp_path, "steps", frame)
    assert path == tmp_path / "steps.parquet"
    pd.testing.assert_frame_equal(pd.read_parquet(path), frame)
    assert [found.name for found in tmp_path.iterdir()] == ["steps.parquet"]


def test_lines_are_on_disk_after_each_call(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    for index in range(3):
        records.append_jsonl(path, {"prompt": index, "text": "a\nb"})
        assert [json.loads(line)["prompt"] for line in path.read_text().splitlines()] == list(range(index + 1))
    with pytest.raises(ValueError, match=names("record.gap nan")):
        records.append_jsonl(path, {"gap": float("nan")})
    assert len(path.read_text().splitlines()) == 3


def test_environment_names_versions_and_machine() -> None:
    found = records.environment()
    assert found["packages"]["papermill"][0].isdigit()
    assert found["physical_cores"] >= 1
    assert found["cpu"]
    json.dumps(found, allow_nan=False)


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_revision_tells_clean_from_dirty_from_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert records.git_revision(tmp_path) is None
    git(tmp_path, "init")
    (tmp_path / "file").write_text("1")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-m", "first")
    clean = records.git_revision(tmp_path)
    assert clean is not None
    assert len(clean) == 40
    (tmp_path / "file").write_text("2")
    assert records.git_revision(tmp_path) == f"{clean}-dirty"
