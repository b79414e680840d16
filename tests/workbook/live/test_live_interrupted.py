"""A measurement that is stopped anywhere keeps what it has, and another run with the same parameters goes on there."""

import json
import os
import signal
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from ddtree.models.zoo import Pair
from ddtree.workbook.live import measure as live
from ddtree.workbook.live import record as live_record
from ddtree.workbook.live.measure import Measurements, measure, settings
from ddtree.workbook.live.plots import (
    draw_acceptance,
    draw_acceptance_by_depth,
    draw_histogram,
    draw_speed,
    draw_stage_times,
)
from ddtree.workbook.live.summary import IncompleteRun, finish, finish_if_partial, metrics_of, summarise
from ddtree.workbook.notebook_run import NotebookRun
from ddtree.workbook.params import LiveParams
from ddtree.workbook.records import RecordError, read_result
from tiny_pair import tiny_pair
from wording import names, tells

PARAMS = LiveParams(
    prompts=["5 1 3", "6 2", "4"],
    temperatures=[0.0, 1.0],
    budget=4,
    topk_cap=2,
    extra_budgets=[2],
    max_new_tokens=5,
    bootstrap=100,
)
EACH = 7  # settings of a prompt
SAME = ["temperature", "label", "prompt", "repeat", "tokens", "rounds", "token_ids", "text"]  # but for times


@pytest.fixture(scope="module")
def pair() -> Pair:
    return tiny_pair()


@pytest.fixture(scope="module")
def whole(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Measurements:
    """The measurement that nothing stops."""
    return measure(pair, PARAMS, tmp_path_factory.mktemp("whole") / "generations.jsonl")


@pytest.fixture(autouse=True)
def one_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Someone may work on the package while its tests run."""
    monkeypatch.setattr(live_record, "code_digest", lambda: "one")


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "generations.jsonl"


def interrupt() -> None:
    raise KeyboardInterrupt


def kill_with(number: signal.Signals) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def crash() -> None:
    raise RuntimeError("out of memory")


def stop_at(monkeypatch: pytest.MonkeyPatch, generation: int, how: Callable[[], None]) -> list[int]:
    """Make `how` happen instead of this generation (1 is the first measured); returns the seeds of those decoded."""
    decoded: list[int] = []
    original = live.decode

    def decode(*arguments: Any, seed: int, tokens: int, **others: Any) -> Any:
        if tokens != live.WARM_UP_TOKENS:
            if len(decoded) == generation - 1:
                how()
            decoded.append(seed)
        return original(*arguments, seed=seed, tokens=tokens, **others)

    monkeypatch.setattr(live, "decode", decode)
    return decoded


def stopped_run(pair: Pair, record: Path, generation: int, how: Callable[[], None] = crash) -> Measurements:
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, generation, how)
        return measure(pair, PARAMS, record)


def test_settings_of_a_prompt_are_as_many_as_the_tests_say() -> None:
    assert len(settings(PARAMS)) == EACH


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        (interrupt, "interrupted"),
        (kill_with(signal.SIGINT), "interrupted"),
        (kill_with(signal.SIGTERM), "interrupted"),
        (crash, "RuntimeError: out of memory"),
    ],
)
def test_whole_prompts_are_kept_whatever_stops_the_run(
    pair: Pair,
    record: Path,
    whole: Measurements,
    how: Callable[[], None],
    reason: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    found = stopped_run(pair, record, 2 * EACH + 4, how)
    assert (found.prompts_done, found.prompts_planned) == (2, 3)
    assert tells(found.stopped, reason)
    printed = capsys.readouterr()
    assert tells(printed.out.splitlines()[-1], f"2 3 {reason}")
    assert ("Traceback" in printed.err) == (how is crash), "where a crash happened is shown"
    pd.testing.assert_frame_equal(found.generations[SAME], whole.generations[SAME].head(2 * EACH))
    assert len(found.rounds) == found.generations["rounds"].sum()
    assert len(record.read_text().splitlines()) == 2 * EACH + 3, "what is of the third prompt stays on disk"
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_only_the_first_signal_interrupts(pair: Pair, record: Path) -> None:
    def twice() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    assert stopped_run(pair, record, EACH + 1, twice).prompts_done == 1


def test_a_thread_that_gets_no_signals_measures_too(pair: Pair, record: Path) -> None:
    found: list[Measurements] = []
    thread = threading.Thread(target=lambda: found.append(measure(pair, PARAMS, record)))
    thread.start()
    thread.join()
    assert found[0].stopped == ""


@pytest.mark.parametrize(("how", "raised"), [(interrupt, KeyboardInterrupt), (crash, RuntimeError)])
def test_without_one_whole_prompt_there_is_nothing_to_show(
    pair: Pair, record: Path, how: Callable[[], None], raised: type[BaseException]
) -> None:
    with pytest.raises(raised):
        stopped_run(pair, record, EACH, how)
    assert len(record.read_text().splitlines()) == EACH - 1


def test_rerun_continues_after_the_last_generation(
    pair: Pair,
    record: Path,
    whole: Measurements,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stopped_run(pair, record, EACH + 3)
    before = record.read_text()
    capsys.readouterr()
    decoded = stop_at(monkeypatch, -1, crash)
    found = measure(pair, PARAMS, record)
    assert len(decoded) == 3 * EACH - (EACH + 2)
    assert record.read_text().startswith(before)
    pd.testing.assert_frame_equal(found.generations[SAME], whole.generations[SAME])
    places = ["temperature", "label", "strategy", "budget", "prompt", "repeat", "round", "tree_size", "accepted"]
    pd.testing.assert_frame_equal(found.rounds[places], whole.rounds[places])
    assert (found.prompts_done, found.stopped) == (3, "")
    printed = capsys.readouterr().out.splitlines()
    assert tells(printed[0], "generations.jsonl 1 3")
    assert [tells(line, f"prompt {done} 3") for done, line in zip((2, 3), printed[3:], strict=True)] == [True, True]


def test_truncated_last_line_is_dropped_said_and_measured_again(
    pair: Pair, record: Path, whole: Measurements, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped_run(pair, record, EACH + 3)
    record.write_bytes(record.read_bytes()[:-40])
    capsys.readouterr()
    found = measure(pair, PARAMS, record)
    assert tells(capsys.readouterr().out, "generations.jsonl")
    pd.testing.assert_frame_equal(found.generations[SAME], whole.generations[SAME])
    assert [json.loads(line)["tokens"] for line in record.read_text().splitlines()] == [5] * 3 * EACH


def test_run_stopped_while_it_wrote_a_line_shows_whole_lines(
    pair: Pair, record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tear() -> None:
        with record.open("a") as file:
            file.write('{"temperature": 0.')
        raise KeyboardInterrupt

    assert stopped_run(pair, record, EACH + 3, tear).prompts_done == 1
    assert measure(pair, PARAMS, record).prompts_done == 3


def test_line_that_is_not_json_is_named(pair: Pair, record: Path) -> None:
    stopped_run(pair, record, EACH + 3)
    first, _, rest = record.read_text().partition("\n")
    record.write_text(first + "\n{broken\n" + rest)
    with pytest.raises(RecordError, match=names("line 2 generations.jsonl")):
        measure(pair, PARAMS, record)


@pytest.mark.parametrize(
    "changes", [{"seed": 1}, {"prompts": ["5 1 3", "6 2", "3"]}, {"temperatures": [0.0, 0.9]}, {"max_new_tokens": 6}]
)
def test_other_parameters_start_afresh_and_the_old_record_is_kept(
    pair: Pair, record: Path, changes: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    stopped_run(pair, record, EACH + 3)
    old = record.read_text()
    capsys.readouterr()
    found = measure(pair, PARAMS.model_copy(update=changes), record)
    (name,) = changes
    said = f"generations.jsonl {name} generations.other-1.jsonl"
    assert tells(capsys.readouterr().out.splitlines()[0], said)
    assert record.with_name("generations.other-1.jsonl").read_text() == old
    assert len(found.generations) == len(record.read_text().splitlines()) == 3 * EACH


def test_each_other_record_gets_a_name_of_its_own(pair: Pair, record: Path) -> None:
    for seed in range(3):
        measure(pair, PARAMS.model_copy(update={"seed": seed}), record)
    assert sorted(path.name for path in record.parent.iterdir()) == [
        "generations.jsonl",
        "generations.other-1.jsonl",
        "generations.other-2.jsonl",
        "generations.unfinished.json",
    ]


@pytest.mark.parametrize("change", ["code", "pair"])
def test_other_code_or_model_starts_afresh(
    pair: Pair, record: Path, change: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped_run(pair, record, EACH + 3)
    if change == "code":
        monkeypatch.setattr(live_record, "code_digest", lambda: "two")
    else:
        pair = Pair(pair.target, pair.drafter, {"model": "another"})
    measure(pair, PARAMS, record)
    assert tells(capsys.readouterr().out, f"generations.jsonl {change} generations.other-1.jsonl")


@pytest.mark.parametrize(
    "changes",
    [
        {"out_dir": "outputs/elsewhere"},
        {"bootstrap": 500},
        {"regression_prompts": 0, "regression_tokens": 1},
        {"diversity_samples": 3, "diversity_tokens": 1},
    ],
)
def test_what_comes_after_the_measurement_may_change(pair: Pair, record: Path, changes: dict[str, Any]) -> None:
    stopped_run(pair, record, EACH + 3)
    before = record.read_text()
    measure(pair, PARAMS.model_copy(update=changes), record)
    assert record.read_text().startswith(before)


def test_code_that_decodes_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(live_record.ddtree, "__file__", str(tmp_path / "__init__.py"))
    (tmp_path / "workbook").mkdir()
    digests = []
    for name, content in (
        ("decode.py", "1"),
        ("decode.py", "2"),
        ("workbook/a.py", "3"),
        ("verify.py", "4"),
    ):
        (tmp_path / name).write_text(content)
        digests.append(live_record.code_digest())
    assert digests[1] == digests[2]
    assert len({*digests}) == 3


# How the run finishes


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NotebookRun:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "ddtree"\n')
    monkeypatch.chdir(tmp_path)
    return NotebookRun("03_live", PARAMS, tmp_path, started_utc=datetime.now(UTC), began=0.0)


def test_partial_run_ends_with_a_result_that_says_so(pair: Pair, record: Path, run: NotebookRun) -> None:
    measured = stopped_run(pair, record, 2 * EACH + 1)
    summary = summarise(measured, resamples=100, seed=0)
    with pytest.raises(IncompleteRun) as caught:
        finish_if_partial(run, measured, metrics_of(summary), record=record)
    assert tells(caught.value, "2 3 RuntimeError: out of memory out_dir generations.jsonl")
    metrics = read_result(run.out_dir)["metrics"]
    assert {name: metrics[name] for name in ("prompts_done", "prompts_planned", "complete")} == {
        "prompts_done": 2,
        "prompts_planned": 3,
        "complete": False,
    }
    assert metrics["greedy_equal_float32"] is None, "it was not looked at"
    assert metrics["speedup"]["1"]["autoregressive"] == {"value": 1, "low": 1, "high": 1}
    pd.testing.assert_frame_equal(pd.read_parquet(run.out_dir / "rounds.parquet"), measured.rounds)
    assert measure(pair, PARAMS, record).prompts_done == 3, "it can be continued"


def test_complete_run_goes_on_and_closes_its_record(pair: Pair, record: Path, run: NotebookRun) -> None:
    measured = measure(pair, PARAMS, record)
    finish_if_partial(run, measured, {}, record=record)
    assert not (run.out_dir / "result.json").exists()
    finish(run, measured, {"speedup": 2.0}, record=record)
    metrics = read_result(run.out_dir)["metrics"]
    assert metrics == {"speedup": 2.0, "prompts_done": 3, "prompts_planned": 3, "complete": True}
    first = record.read_text()
    measure(pair, PARAMS, record)
    assert record.read_text() != first, "times differ: a finished run is measured afresh"


def test_figures_and_summary_of_a_partial_run(pair: Pair, record: Path) -> None:
    measured = stopped_run(pair, record, EACH + 2)
    summary = summarise(measured, resamples=100, seed=0)
    assert len(summary) == EACH
    assert set(summary["tokens"]) == {5}, "one prompt each, none of the second"
    for draw in (draw_speed, draw_acceptance):
        assert draw(summary).data
    for draw in (draw_acceptance_by_depth, draw_histogram, draw_stage_times):
        assert draw(measured.rounds).data
