"""The whole measurement on a toy's sizes: every benchmark is there once, baselines run or are skipped with a reason."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import yaml
from ddtree.decode import STAGES, Generation, StepRecord
from ddtree.workbook.bench import record
from ddtree.workbook.bench.decoding import (
    BASELINE,
    FIRST_COUNTED,
    STRATEGIES,
    comparable_temperatures,
    encode_prompts,
    load_pairs,
    stage_times,
)
from ddtree.workbook.bench.measure import measure_speed
from ddtree.workbook.bench.synthetic_models import random_pair
from ddtree.workbook.bench.tables import calls_table, rounds_table, verify_table
from ddtree.workbook.bench.view import SpeedResults
from ddtree.workbook.params import ParameterError, SpeedParams
from ddtree.workbook.records import RecordError, read_result, write_result
from wording import names, tells

TOY: dict[str, Any] = {
    "vocabularies": [300],
    "batches": [1, 2],
    "budgets": [4, 12],
    "depth": 3,
    "topk_cap": 4,
    "top_k": 20,
    "repeats": 2,
    "live_models": ["tiny-shape"],
    "live_batches": [2],
    "live_budgets": [4],
    "live_tokens": 6,
    "prompts": ["one", "two"],
    "max_new_tokens": 6,
    "bootstrap": 100,
    "threads": 1,
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record made as on a machine without Jupyter."""
    folder = tmp_path_factory.mktemp("speed")
    (folder / "toy.yaml").write_text(yaml.safe_dump(TOY), encoding="utf-8")
    threads = torch.get_num_threads()
    assert record.main([str(folder / "toy.yaml"), str(folder)]) == 0
    torch.set_num_threads(threads)
    return folder


@pytest.fixture(scope="module")
def metrics(written: Path) -> dict[str, Any]:
    return read_result(written)["metrics"]


def test_every_stage_at_every_size(metrics: dict[str, Any]) -> None:
    stages = pd.DataFrame(metrics["stages"])
    names = {"top-k", "build", "compile", "mask", "sample", "plan", "heap"}
    assert set(stages["stage"]) == names
    assert len(stages) == len(stages.drop_duplicates(["stage", "batch", "budget"])) == len(names) * 4
    assert (stages["how"] == "launches").all(), "a CPU has no graphs"
    assert ((stages["us_lo"] <= stages["us"]) & (stages["us"] <= stages["us_hi"])).all()
    assert (stages["floor_us"] > 0).all()


def test_builders_are_rated_against_the_heap(metrics: dict[str, Any]) -> None:
    builders = pd.DataFrame(metrics["builders"])
    stages = pd.DataFrame(metrics["stages"]).set_index(["stage", "batch", "budget"])["us"]
    assert len(builders) == 4
    for row in builders.to_dict("records"):
        place = (row["batch"], row["budget"])
        assert row["ratio"] == pytest.approx(stages[("heap", *place)] / stages[("build", *place)])


def test_verify_names_what_ran_and_what_did_not(metrics: dict[str, Any]) -> None:
    verify = pd.DataFrame(metrics["verify"])
    assert set(verify["pipeline"]) == {"ours: reference"}
    assert set(verify["filters"]) == {"top-k 20, top-p 0.95", "no filter"}
    assert (verify["over_ours"] == 1).all()
    assert (verify["rows_walked"] >= 1).all()
    reasons = {entry["what"]: entry["why"] for entry in metrics["skipped"]}
    assert {"ours: sgl", "stock pipeline", "SGLang DFlash"} <= set(reasons)
    assert "CUDA" in reasons["stock pipeline"]


def test_rounds_are_the_sum_of_their_stages(metrics: dict[str, Any]) -> None:
    rounds = pd.DataFrame(metrics["rounds"]).set_index("stage")
    assert set(rounds.index) == {*STAGES, "overhead", "round"}
    assert rounds.loc["round", "share"] == 1
    assert 0 < rounds.loc["overhead", "share"] < 1


def test_whole_calls_are_compared_with_the_baseline_where_it_means_something(metrics: dict[str, Any]) -> None:
    chain = pd.DataFrame(metrics["chain"])
    assert set(chain["temperature"]) == {0.0}, "random weights are compared only greedily"
    assert list(chain["method"]) == [*STRATEGIES, BASELINE]
    assert (chain["tokens"] == 2 * TOY["max_new_tokens"]).all()
    speeds = chain.set_index("method")
    assert speeds.loc["tree", "over_peer"] == pytest.approx(
        speeds.loc["tree", "tokens_per_s"] / speeds.loc[BASELINE, "tokens_per_s"]
    )


def test_a_model_that_cannot_be_had_is_skipped_with_the_reason() -> None:
    skipped: list[dict[str, str]] = []
    lines: list[str] = []
    names = [
        name for name, _ in load_pairs(["./no-such-folder", "tiny-shape"], torch.device("cpu"), skipped, lines.append)
    ]
    assert names == ["tiny-shape"]
    assert skipped[0]["what"] == "./no-such-folder"
    assert "drafter" in skipped[0]["why"]
    assert len(lines) == 1


def test_prompts_of_a_random_model_are_random_ids_of_its_vocabulary() -> None:
    pair = random_pair("tiny-shape", dtype=torch.float32, device="cpu")
    prompts = encode_prompts("tiny-shape", pair, ["a", "b", "c"], seed=1)
    assert len(prompts) == 3
    assert len({tuple(prompt) for prompt in prompts}) == 3
    assert all(0 <= token < 128 for prompt in prompts for token in prompt)
    assert comparable_temperatures("tiny-shape", [0.0, 1.0]) == [0.0]
    assert comparable_temperatures("smollm2-135m", [0.0, 1.0]) == [0.0, 1.0]


def test_rounds_counted_have_the_whole_batch_and_are_warm() -> None:
    def answer(rounds: int) -> Generation:
        steps = [StepRecord(5, 0, 1, 2, {"draft": float(i)}) for i in range(rounds)]
        return Generation([1], steps=steps)

    assert stage_times([answer(6), answer(4)]) == [{"draft": 2.0}, {"draft": 3.0}]
    assert len(stage_times([answer(FIRST_COUNTED), answer(1)])) == 1, "the last common round, if there are no others"


def test_a_recorded_result_is_shown_and_says_so(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddtree.workbook.bench.view.measure_speed", lambda params: pytest.fail("nothing is measured"))
    speed = SpeedResults.measured_or_recorded(SpeedParams(recorded=str(written / "result.json")))
    assert tells(speed.source, "Recorded")
    assert speed.settings["vocabularies"] == [300]
    assert len(speed.stages) == 28
    shown = speed.facts()
    assert shown["source"] == speed.source
    assert tells(shown["live models"], "tiny-shape float32")
    assert shown["budgets"] == [4, 12]
    assert "prompts" not in shown
    assert speed.metrics["recorded"]["environment"]["packages"]["torch"]
    for table, frame in ((verify_table, speed.verify), (rounds_table, speed.rounds), (calls_table, speed.chain)):
        assert "<table" in table(frame).to_html()


def test_a_record_of_another_notebook_is_refused(tmp_path: Path) -> None:
    write_result(tmp_path, notebook="05_sweep", params=SpeedParams(), metrics={"cells": 1}, wall_s=1.0)
    with pytest.raises(RecordError, match=names("05_sweep 07_speed")):
        SpeedResults.measured_or_recorded(SpeedParams(recorded=str(tmp_path)))


def test_a_gpu_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match=names("CUDA")):
        measure_speed(SpeedParams(device="cuda"))


def test_wrong_arguments_and_parameters_end_with_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert record.main(["one.yaml"]) == 2
    (tmp_path / "bad.yaml").write_text("repeats: 1\n", encoding="utf-8")
    assert record.main([str(tmp_path / "bad.yaml"), str(tmp_path)]) == 2
    assert "repeats" in capsys.readouterr().err
    with pytest.raises(ParameterError):
        SpeedParams.from_mapping({"budgets": []})
