"""The command without Jupyter: what it writes, adds to and refuses, and that nothing it started outlives it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ddtree.workbook.bench_serving import servers
from ddtree.workbook.bench_serving.record import main
from ddtree.workbook.params import ServingParams
from ddtree.workbook.records import read_result
from serving_room import PROGRAM, Room, made_room, until
from wording import tells

SCRIPT = """
import sys
from ddtree.workbook.bench_serving.record import main
sys.exit(main(sys.argv[1:3], program=sys.argv[3:]))
"""


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Room]:
    monkeypatch.setattr(servers, "POLL_S", 0.05)
    monkeypatch.setattr(servers, "COOL_DOWN_S", 0.0)
    monkeypatch.setenv("STAND_IN", str(tmp_path))
    return made_room(tmp_path)


def written(room: Room, **changed: Any) -> list[str]:
    """The command's arguments, with a file of parameters for them."""
    small = {"temperatures": [0.0], "batches": [1], "samples": 2, "repeats": 1, "extra_layers": [0]}
    path = room.place / "params.yaml"
    path.write_text(yaml.safe_dump(room.params(**(small | changed)).to_plain()))
    return [str(path), str(room.place / "out")]


def test_the_record_is_one_of_the_notebook_and_groups_are_added(room: Room, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(written(room, extra_layers=[3]), program=PROGRAM) == 0
    first = read_result(room.place / "out")
    assert (first["notebook"], first["params"]["extra_layers"]) == ("04_serving", [3])
    assert first["metrics"]["depth_is_free"] == []
    assert main(written(room, extra_layers=[0]), program=PROGRAM) == 0
    both = read_result(room.place / "out")
    assert both["params"]["extra_layers"] == [0, 3]
    assert ServingParams.from_mapping(both["params"]).extra_layers == [0, 3]
    assert {row["extra_layers"] for row in both["metrics"]["alone"]} == {0, 3}
    assert [row["same"] for row in both["metrics"]["depth_is_free"]] == [True, True, False]
    assert len(both["metrics"]["diversity"]) == 0, "none is measured at T = 0"
    said = capsys.readouterr().out
    assert tells(said, "plain")
    assert room.alive() == []


def test_a_group_measured_again_replaces_its_rows(room: Room) -> None:
    for _ in range(2):
        assert main(written(room, temperatures=[0.6]), program=PROGRAM) == 0
    metrics = read_result(room.place / "out")["metrics"]
    assert len(metrics["servers"]) == len(metrics["diversity"]) == 3
    assert len(metrics["alone"]) == 3 * 3
    assert len(metrics["skipped"]) == 1


def test_a_record_of_other_parameters_is_not_added_to(room: Room, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(written(room), program=PROGRAM) == 0
    before = (room.place / "out/result.json").read_bytes()
    assert main(written(room, max_new_tokens=9, extra_layers=[3]), program=PROGRAM) == 2
    assert tells(capsys.readouterr().err, "max_new_tokens")
    assert (room.place / "out/result.json").read_bytes() == before


def test_what_fails_later_leaves_the_groups_before_it(
    room: Room, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (room.drafter / "config.json").write_text(
        json.dumps(json.loads((room.drafter / "config.json").read_text()) | {"dflash_config": {}})
    )
    assert main(written(room, extra_layers=[0, 3]), program=PROGRAM) == 1
    assert tells(capsys.readouterr().err, "dflash_config.target_layer_ids")
    assert read_result(room.place / "out")["params"]["extra_layers"] == [0]
    assert room.alive() == []


def test_a_dead_server_is_an_exit_code_and_a_sentence(
    room: Room, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STAND_IN_DIES", "plain")
    assert main(written(room), program=PROGRAM) == 1
    assert tells(capsys.readouterr().err, "plain 3")
    assert not (room.place / "out/result.json").exists()
    assert room.alive() == []


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_a_signal_stops_every_server(room: Room, number: signal.Signals) -> None:
    arguments = written(room, max_new_tokens=4000, samples=0)
    run = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *arguments, *PROGRAM], env=os.environ, stderr=subprocess.PIPE, text=True
    )
    try:
        until(lambda: (room.place / "asked.jsonl").exists())
        until(lambda: len(room.alive()) == 6)  # the first is asked before the last has begun
        run.send_signal(number)
        _, told = run.communicate(timeout=30)
    finally:
        run.kill()
    assert run.returncode == 130, told
    assert tells(told, "interrupted")
    assert room.alive() == []


def test_wrong_arguments_and_parameters_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["only.yaml"]) == 2
    (tmp_path / "wrong.yaml").write_text("budgets: [0]\n")
    assert main([str(tmp_path / "wrong.yaml"), str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert tells(told, "1 PARAMS.yaml OUT_DIR")
    assert "budgets" in told
