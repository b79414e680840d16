"""What the view makes of a record: ratios that are known, intervals of constant data, and sentences on its source."""

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from ddtree.workbook.bench_serving import tables, view
from ddtree.workbook.bench_serving.summary import (
    best_budgets,
    cost_name,
    describe_depths,
    describe_diversity,
    describe_greedy,
    greedy_summary,
    in_order,
    label,
)
from ddtree.workbook.bench_serving.view import ServingResults
from ddtree.workbook.params import ServingParams, SpeedParams
from ddtree.workbook.records import RecordError, write_result
from serving_record import (
    DRAFTED,
    FIRST_S,
    ROUNDS,
    TOGETHER_SLOWER,
    TOKENS,
    made_up,
    round_s,
    rounds_of,
    step_s,
    write_made_up,
)
from wording import names, tells

PARAMS = ServingParams.from_mapping({"extra_layers": [0, 100], "budgets": [16, 32], "bootstrap": 100})


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> ServingResults:
    return ServingResults.recorded(write_made_up(tmp_path_factory.mktemp("made"), PARAMS), PARAMS)


def seconds(name: str, temperature: float, extra_layers: int, batch: int) -> float:
    slower = TOGETHER_SLOWER if batch > 1 else 1.0
    return FIRST_S + rounds_of(name, temperature) * round_s(name, extra_layers) * slower


# Rates


def test_every_server_is_rated_at_every_place(serving: ServingResults) -> None:
    assert len(serving.rates) == 2 * 3 * 2 * 4
    for row in serving.rates.to_dict("records"):
        place = (row["temperature"], row["extra_layers"], row["batch"])
        own = seconds(row["name"], *place)
        assert row["tokens_per_s"] == pytest.approx(TOKENS * row["batch"] / own)
        assert row["over_plain"] == pytest.approx(seconds("plain", *place) / own)
        assert row["over_dflash"] == pytest.approx(seconds("dflash", *place) / own)
        assert row["units"] == (8 if row["batch"] == 1 else 3)


def test_intervals_of_constant_data_are_their_value(serving: ServingResults) -> None:
    for name in ("tokens_per_s", "over_plain", "over_dflash"):
        for end in ("lo", "hi"):
            assert serving.rates[f"{name}_{end}"].to_numpy() == pytest.approx(serving.rates[name].to_numpy())


def test_intervals_are_paired_over_prompts(tmp_path: Path) -> None:
    metrics = made_up(PARAMS)
    for row in metrics["alone"]:  # prompts differ a lot, in the same way for every server
        row["total_s"] *= 1 + row["prompt"]
    write_result(tmp_path, notebook="04_serving", params=PARAMS, metrics=metrics, wall_s=1.0)
    alone = ServingResults.recorded(tmp_path, PARAMS).rates.query("batch == 1")
    assert (alone["tokens_per_s_hi"] > 1.1 * alone["tokens_per_s"]).all()
    assert alone["over_plain_hi"].to_numpy() == pytest.approx(alone["over_plain"].to_numpy())


def test_acceptance_leaves_out_the_token_of_prefill(serving: ServingResults) -> None:
    for row in serving.rates.to_dict("records"):
        if row["name"] == "plain":
            assert pd.isna(row["acceptance"])
        else:
            assert row["acceptance"] == pytest.approx(DRAFTED / ROUNDS[row["name"]][row["temperature"]])


def test_a_prompt_that_a_server_missed_is_left_out_for_all(tmp_path: Path) -> None:
    metrics = made_up(PARAMS)
    metrics["alone"] = [row for row in metrics["alone"] if (row["name"], row["prompt"]) != ("dflash", 3)]
    write_result(tmp_path, notebook="04_serving", params=PARAMS, metrics=metrics, wall_s=1.0)
    rates = ServingResults.recorded(tmp_path, PARAMS).rates
    assert set(rates.loc[rates["batch"] == 1, "units"]) == {7}


def test_servers_stand_in_order() -> None:
    rows = [
        ("ddtree-64", "ddtree", 64),
        ("ddtree-8", "ddtree", 8),
        ("dflash", "dflash", None),
        ("plain", "plain", None),
    ]
    frame = pd.DataFrame(rows, columns=["name", "method", "budget"])
    assert in_order(frame) == ["plain", "dflash", "ddtree-8", "ddtree-64"]


# Steps, rounds, targets


def test_step_costs_are_the_plain_engines(serving: ServingResults) -> None:
    assert serving.steps["extra_layers"].tolist() == [0, 100]
    assert serving.steps["step_ms"].tolist() == pytest.approx([1e3 * step_s(0), 1e3 * step_s(100)])
    assert serving.emulated


def test_a_round_is_a_step_and_what_is_added_and_makes_the_speedup(serving: ServingResults) -> None:
    assert len(serving.rounds) == 2 * 3 * 3
    for row in serving.rounds.to_dict("records"):
        assert row["round_ms"] == pytest.approx(1e3 * round_s(row["name"], row["extra_layers"]))
        assert row["added_ms"] == pytest.approx(2 + 0.01 * (0 if pd.isna(row["budget"]) else row["budget"]))
        decode_plain = DRAFTED * step_s(row["extra_layers"])
        decode_own = rounds_of(row["name"], row["temperature"]) * round_s(row["name"], row["extra_layers"])
        assert row["decode_over_plain"] == pytest.approx(decode_plain / decode_own)


def test_the_best_budget_is_rated_against_its_target(serving: ServingResults) -> None:
    best = best_budgets(serving.rates).set_index(["extra_layers", "batch", "temperature"])
    first = best.loc[(0, 1, 0.0)]
    assert first["name"] == "ddtree-32"
    assert first["over_dflash"] == pytest.approx(seconds("dflash", 0.0, 0, 1) / seconds("ddtree-32", 0.0, 0, 1))
    assert first["tokens_over"] == pytest.approx(40 / 24)
    assert first["tokens_over"] / first["time_over"] == pytest.approx(first["over_dflash"])
    assert (first["target"], first["verdict"]) == (1.2, "reached")
    assert best.loc[(0, 8, 1.0), "target"] == 1.1
    slow = best.loc[(0, 1, 1.0)]
    assert slow["over_dflash"] < 1.2
    assert slow["verdict"] == "missed"


@pytest.mark.parametrize(
    ("value", "low", "verdict"), [(1.3, 1.2, "reached"), (1.3, 1.1, "reached, interval below"), (1.1, 1.0, "missed")]
)
def test_verdicts(value: float, low: float, verdict: str) -> None:
    base = {"extra_layers": 0, "batch": 1, "temperature": 0.0, "units": 8, "acceptance": 2.0}
    ratio = {"over_dflash": value, "over_dflash_lo": low, "over_dflash_hi": 1.4}
    rows = [
        base | {"name": "dflash", "method": "dflash", "budget": None, "over_dflash": 1.0},
        base | {"name": "ddtree-16", "method": "ddtree", "budget": 16.0} | ratio,
    ]
    (row,) = best_budgets(pd.DataFrame(rows)).to_dict("records")
    assert row["verdict"] == verdict
    (other,) = best_budgets(pd.DataFrame(rows).assign(batch=4)).to_dict("records")
    assert (other["target"], other["verdict"]) == (None, "")


# Sentences


def greedy(*rows: tuple[int | None, float | None, bool | None]) -> pd.DataFrame:
    columns = ["first_difference", "gap_nats", "second_choice"]
    frame = pd.DataFrame(rows, columns=columns).astype({"first_difference": float, "gap_nats": float})
    return frame.assign(extra_layers=0, name="ddtree-16", prompt=range(len(rows)), tokens=9)


def test_greedy_texts_are_equal_diverge_at_near_ties_or_are_wrong() -> None:
    equal, tie = (None, None, None), (5, 0.125, True)
    assert tells(describe_greedy(greedy(equal, equal)), "2 2")
    assert tells(describe_greedy(greedy(equal, tie)), "1 0.125")
    for far in ((5, 0.5, True), (5, 0.125, False), (5, None, None)):
        assert tells(describe_greedy(greedy(equal, tie, far)), "2 1 NO"), far
    (row,) = greedy_summary(greedy(equal, tie, (7, 0.5, True))).to_dict("records")
    assert (row["prompts"], row["equal"], row["diverged"], row["near_ties"], row["largest_gap"]) == (3, 1, 2, 1, 0.5)
    assert not re.search(r"\d", describe_greedy(greedy().iloc[:0]))


def test_depth_is_free_or_is_said_not_to_be(serving: ServingResults) -> None:
    assert tells(describe_depths(serving.depth_is_free), "8 8 100")
    changed = serving.depth_is_free.assign(same=[False] + [True] * 7)
    assert tells(describe_depths(changed), "7 8 100")
    assert not re.search(r"\d", describe_depths(serving.depth_is_free.iloc[:0]))


def test_a_server_that_repeats_itself_is_named() -> None:
    columns = ["name", "temperature", "samples", "distinct"]
    rows = [["plain", 0.6, 32, 30], ["dflash", 0.6, 32, 28], ["plain", 1.0, 32, 32], ["dflash", 1.0, 32, 31]]
    assert not re.search(r"\d", describe_diversity(pd.DataFrame(rows, columns=columns)))
    rows[3][3] = 9  # greedy after a sampled first token
    assert tells(describe_diversity(pd.DataFrame(rows, columns=columns)), "DFLASH T = 1 9 32 32")
    assert not re.search(r"\d", describe_diversity(pd.DataFrame(rows[1::2], columns=columns)))


def test_a_cost_that_is_emulated_says_so() -> None:
    assert tells(cost_name(0, 1.04), "1.0 ms")
    assert tells(cost_name(130, 5.26), "emulated 5.3 ms +130")
    assert tells(cost_name(130, 5.26, short=True), "emulated 5.3 ms +130")
    assert tells(cost_name(0, 1.04, short=True), "1.0 ms")
    assert tells(cost_name(130, None, short=True), "emulated +130")
    assert tells(cost_name(130, None), "emulated +130")
    assert not re.search(r"\d", cost_name(0, None))
    assert [label(name) for name in ("plain", "dflash", "ddtree-16")] == ["plain", "DFLASH", "DDTREE 16"]


# Tables


def rows_of(styler: Any) -> list[list[str]]:
    """Head and rows as they are shown."""
    return [line.split("|") for line in styler.to_string(delimiter="|").splitlines()]


def test_tables_name_the_emulated_cost_and_hold_the_numbers(serving: ServingResults) -> None:
    head, first, *rest = rows_of(tables.rates_table(serving.rates, serving.steps))
    assert head == ["step cost", "batch", "T", "plain, tokens/s", "DFLASH", "DDTREE 16", "DDTREE 32"]
    assert tells(first[0], "1.0 ms")
    assert first[3] == f"{TOKENS / 0.14:,.0f} ({TOKENS / 0.14:,.0f} to {TOKENS / 0.14:,.0f})"
    assert tells(rest[-1][0], "emulated 5.0 ms +100")
    assert len(rest) == 11
    head, first, *_ = rows_of(tables.best_table(serving.rates, serving.steps))
    assert (first[3], first[5], first[7]) == ("DDTREE 32", "1.67×", "1.2: reached")
    head, first, *_ = rows_of(tables.rounds_table(serving.rounds, serving.steps))
    assert head == ["step cost", "T", "plain step", "DFLASH", "DDTREE 16", "DDTREE 32"]
    assert first[2:4] == ["1.00 ms", "3.00 ms, 3.00"]
    head, first, second = rows_of(tables.servers_table(serving.servers))
    assert second == ["130", "100", "plain, DFLASH, DDTREE 16, DDTREE 32", "80 to 80 s", "2026-11-30, 0123456"]
    earlier = serving.servers.assign(git_revision=None, ready_utc=None)  # a record of before they were noted
    assert rows_of(tables.servers_table(earlier))[1][-1] == ""


def test_greedy_tables_count_what_parts_and_show_where() -> None:
    frame = greedy((None, None, None), (5, 0.125, True), (7, 0.5, False))
    steps = pd.DataFrame({"extra_layers": [0], "step_ms": [1.0]})
    cost, *values = rows_of(tables.greedy_table(frame, steps))[1]
    assert (tells(cost, "1.0 ms"), values) == (True, ["DDTREE 16", "3", "1", "1", "1", "0.500"])
    _, first, second = rows_of(tables.divergence_table(frame, steps))
    assert (tells(first[0], "1.0 ms"), first[1:]) == (True, ["DDTREE 16", "3", "7", "0.500", "NO"])
    assert second[-1] == "yes"


def test_commands_are_one_of_each_method_in_lines_that_a_shell_joins(serving: ServingResults) -> None:
    long = serving.servers.assign(command="python -m sglang.launch_server " + "--an-argument value " * 6)
    said = tables.commands(long)
    assert [part.partition(":")[0] for part in said.split("\n\n")] == ["plain", "DFLASH", "DDTREE 16"]
    assert said.replace(" \\\n   ", "").count("--an-argument value") == 18
    assert max(map(len, said.splitlines())) <= 90
    attached = tables.commands(serving.servers.assign(command="", url="http://host:1"))
    assert attached.startswith("plain:\nhttp://host:1")


# Where it comes from


def test_a_record_says_that_nothing_was_measured_here(serving: ServingResults, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tells(serving.source, "Recorded")
    assert serving.batches == [1, 8]
    facts = serving.facts()
    assert facts["prompts"] == 8
    assert tells(facts["emulated cost"], "100")


def test_without_gpu_and_servers_the_last_run_is_shown_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(view, "project_root", lambda: tmp_path)
    monkeypatch.setattr(view, "measure_serving", lambda *_, **__: pytest.fail("nothing is measured"))
    with pytest.raises(RecordError, match=names("GPU docs/h200/serving.json")):
        ServingResults.measured_or_recorded(ServingParams())
    (tmp_path / "docs" / "h200").mkdir(parents=True)
    write_made_up(tmp_path, PARAMS).rename(tmp_path / "docs" / "h200" / "serving.json")
    shown = ServingResults.measured_or_recorded(ServingParams())
    assert tells(shown.source, "GPU urls")
    assert shown.settings["extra_layers"] == [0, 100]


@pytest.mark.parametrize("gpu", [True, False])
def test_servers_are_measured_where_there_are_any(gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(view, "measure_serving", lambda params, say: made_up(params))
    urls = {} if gpu else {"plain": "http://127.0.0.1:1"}
    measured = ServingResults.measured_or_recorded(ServingParams.from_mapping({"bootstrap": 100, "urls": urls}))
    assert not tells(measured.source, "Recorded")
    assert "recorded" not in measured.metrics
    assert not measured.emulated


def test_another_notebooks_record_is_refused(tmp_path: Path) -> None:
    write_result(tmp_path, notebook="07_speed", params=SpeedParams(), metrics={}, wall_s=1.0)
    with pytest.raises(RecordError, match=names("07_speed 04_serving")):
        ServingResults.measured_or_recorded(ServingParams(recorded=str(tmp_path)))
