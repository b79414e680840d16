"""One record of two parts that two processes measured: everything of both, and what was there when each ran."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from ddtree.workbook.bench import measure, record
from ddtree.workbook.bench.record import merge_parts
from ddtree.workbook.bench.view import SpeedResults
from ddtree.workbook.params import SpeedParams
from ddtree.workbook.records import RecordError, read_result
from wording import names, tells

TOY: dict[str, Any] = {
    "vocabularies": [200],
    "batches": [1],
    "budgets": [4],
    "depth": 2,
    "topk_cap": 2,
    "top_k": 20,
    "repeats": 2,
    "live_models": ["tiny-shape"],
    "live_batches": [1],
    "live_budgets": [4],
    "live_tokens": 5,
    "prompts": ["one"],
    "max_new_tokens": 5,
    "bootstrap": 100,
    "threads": 1,
}
Parts = tuple[dict[str, Any], dict[str, Any]]


def main(*arguments: object) -> int:
    return record.main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both parts, each measured by itself."""
    folder = tmp_path_factory.mktemp("parts")
    (folder / "toy.yaml").write_text(yaml.safe_dump(TOY), encoding="utf-8")
    threads = torch.get_num_threads()
    for part in ("kernels", "live"):
        assert main(folder / "toy.yaml", folder / part, part) == 0
    torch.set_num_threads(threads)
    return folder


@pytest.fixture
def parts(folder: Path) -> Parts:
    return copy.deepcopy(read_result(folder / "kernels")), copy.deepcopy(read_result(folder / "live"))


def test_a_part_holds_its_own_rows_alone(parts: Parts) -> None:
    kernels, live = (part["metrics"] for part in parts)
    assert set(kernels) == {"copy_bytes_per_s", "stages", "builders", "verify", "attention", "skipped"}
    assert set(live) == {"models", "rounds", "chain", "skipped"}


def test_what_stops_a_part_leaves_what_was_measured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(measure, "measure_attention", stopped)
    with pytest.raises(KeyboardInterrupt):
        main(folder / "toy.yaml", folder / "stopped", "kernels")
    left = read_result(folder / "stopped")["metrics"]
    assert set(left) == {"copy_bytes_per_s", "stages", "builders", "verify", "skipped"}
    with pytest.raises(RecordError, match=names("attention rounds chain")):
        SpeedResults.measured_or_recorded(SpeedParams(recorded=str(folder / "stopped")))


def test_the_record_of_both_is_shown_and_names_what_each_was_measured_with(folder: Path, parts: Parts) -> None:
    kernels, live = parts
    assert main("merge", folder / "kernels", folder / "live" / "result.json", folder / "both") == 0
    both = read_result(folder / "both")
    assert both["wall_s"] == pytest.approx(kernels["wall_s"] + live["wall_s"], abs=0.06)
    assert both["metrics"]["verify"] == kernels["metrics"]["verify"]
    assert both["metrics"]["chain"] == live["metrics"]["chain"]
    assert len(both["metrics"]["skipped"]) == len(kernels["metrics"]["skipped"]) + len(live["metrics"]["skipped"])
    assert both["metrics"]["parts"]["live"]["environment"] == live["environment"]
    speed = SpeedResults.measured_or_recorded(SpeedParams(recorded=str(folder / "both")))
    assert len(speed.verify) == len(kernels["metrics"]["verify"])
    assert len(speed.rounds) == len(live["metrics"]["rounds"])
    assert f"torch {live['environment']['packages']['torch']}" in str(speed.facts()["live measured"])


def test_a_part_alone_is_not_shown_as_a_whole(folder: Path) -> None:
    with pytest.raises(RecordError, match=names("rounds chain")):
        SpeedResults.measured_or_recorded(SpeedParams(recorded=str(folder / "kernels")))


def test_parts_that_do_not_belong_together_are_refused(parts: Parts) -> None:
    kernels, live = parts
    with pytest.raises(RecordError, match=names("kernels live")):
        merge_parts(live, kernels)
    elsewhere = {**live, "environment": {**live["environment"], "cpu": "an abacus"}}
    with pytest.raises(RecordError, match=names("cpu kernels abacus")):
        merge_parts(kernels, elsewhere)
    live["params"]["budgets"] = [5]
    with pytest.raises(RecordError, match=names("budgets [4] [5]")):
        merge_parts(kernels, live)


def test_wrong_arguments_end_with_two(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main("merge", "one") == 2
    assert main("merge", folder / "kernels", tmp_path / "none", tmp_path) == 2
    assert str(tmp_path / "none") in capsys.readouterr().err
    assert main(folder / "toy.yaml", tmp_path, "heads") == 2
    assert tells(capsys.readouterr().err, "heads kernels live")
    assert not list(tmp_path.iterdir())
