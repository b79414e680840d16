"""The live measurement: its plan, its order, its records, and its summary against numbers worked out by hand."""

import json
from pathlib import Path

import pandas as pd
import pytest
from ddtree.decode import STAGES, generate
from ddtree.models.zoo import Pair
from ddtree.sampling import SamplingParams
from ddtree.workbook.live.measure import Measurements, Setting, measure, settings
from ddtree.workbook.live.summary import metrics_of, summarise
from ddtree.workbook.params import LiveParams
from tiny_pair import tiny_pair
from wording import tells

# The plan


def test_extra_budgets_are_measured_at_the_highest_temperature_alone() -> None:
    params = LiveParams(temperatures=[1.0, 0.0], budget=8, topk_cap=3, extra_budgets=[4, 8, 12, 4])
    assert settings(params) == [
        Setting(1.0, "autoregressive", 0, 0),
        Setting(1.0, "chain", 0, 0),
        Setting(1.0, "tree", 8, 3),
        Setting(1.0, "tree", 4, 3),
        Setting(1.0, "tree", 12, 3),
        Setting(0.0, "autoregressive", 0, 0),
        Setting(0.0, "chain", 0, 0),
        Setting(0.0, "tree", 8, 3),
    ]


def test_labels() -> None:
    assert [setting.label for setting in settings(LiveParams(temperatures=[0.6], extra_budgets=[]))] == [
        "autoregressive",
        "chain",
        "tree 16/4",
    ]


# The measurement


@pytest.fixture(scope="module")
def params() -> LiveParams:
    return LiveParams(
        prompts=["5 1 3", "6 2"],
        temperatures=[0.0, 1.0],
        budget=6,
        topk_cap=3,
        extra_budgets=[2],
        max_new_tokens=10,
        repeats=2,
        seed=40,
        top_k=6,
    )


@pytest.fixture(scope="module")
def pair() -> Pair:
    return tiny_pair()


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("live") / "generations.jsonl"
    path.write_text("of an earlier run\n")
    return path


@pytest.fixture(scope="module")
def measured(pair: Pair, params: LiveParams, record: Path) -> Measurements:
    return measure(pair, params, record)


def test_settings_take_turns_and_each_prompt_begins_with_another(measured: Measurements, params: LiveParams) -> None:
    plan = [(setting.temperature, setting.label) for setting in settings(params)]
    rows = measured.generations
    groups = [rows.iloc[start : start + len(plan)] for start in range(0, len(rows), len(plan))]
    assert [(set(group["repeat"]), set(group["prompt"])) for group in groups] == [
        ({0}, {0}),
        ({0}, {1}),
        ({1}, {0}),
        ({1}, {1}),
    ]
    for turn, group in enumerate(groups):
        found = list(zip(group["temperature"], group["label"], strict=True))
        assert found == plan[turn:] + plan[:turn]


def test_record_has_one_line_for_each_generation_in_order(
    measured: Measurements, record: Path, params: LiveParams
) -> None:
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert len(lines) == 2 * 2 * len(settings(params)), "what an earlier run left is gone"
    steps = [line.pop("steps") for line in lines]
    assert lines == measured.generations.to_dict("records")
    assert set(lines[0]) == {
        *("temperature", "label", "strategy", "budget", "prompt", "repeat"),
        *("tokens", "rounds", "decode_ms", "prefill_ms", "reason", "token_ids", "text"),
    }
    place = ["temperature", "label", "strategy", "budget", "prompt", "repeat", "round"]
    assert [step for own in steps for step in own] == measured.rounds.drop(columns=place).to_dict("records")


def test_generations_are_those_of_the_parameters(measured: Measurements, pair: Pair) -> None:
    """All settings of a prompt share its seed: that of the run, plus its place in the plan."""
    for row in measured.generations.itertuples():
        alone = generate(
            pair.target,
            pair.drafter,
            [["5 1 3", "6 2"][row.prompt]],
            strategy=row.strategy,
            sampling=SamplingParams(row.temperature, top_k=6),
            max_new_tokens=10,
            budget=row.budget,
            topk_cap=3,
            seed=40 + 2 * row.repeat + row.prompt,
        )[0]
        assert row.token_ids == alone.tokens
        assert row.text == alone.text
        assert (row.tokens, row.rounds, row.reason) == (10, len(alone.steps), "length")


def test_rounds_add_up_to_their_generation(measured: Measurements) -> None:
    keys = ["temperature", "label", "prompt", "repeat"]
    rounds = measured.rounds.groupby(keys)
    whole = measured.generations.set_index(keys).sort_index()
    assert (rounds["emitted"].sum() == whole["tokens"]).all()
    assert (rounds.size() == whole["rounds"]).all()
    times = rounds[[f"{stage}_ms" for stage in STAGES]].sum().sum(axis=1)
    pd.testing.assert_series_equal(times, whole["decode_ms"], check_names=False)
    for _, numbers in rounds["round"]:
        assert numbers.tolist() == list(range(len(numbers)))
    sizes = measured.rounds.groupby("label")["tree_size"].unique()
    assert {label: list(found) for label, found in sizes.items()} == {
        "autoregressive": [1],
        "chain": [4],
        "tree 2/3": [3],
        "tree 6/3": [7],
    }


def test_progress_is_one_line_for_each_prompt(pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    params = LiveParams(prompts=["5 1 3", "6 2"], temperatures=[0.0], extra_budgets=[], max_new_tokens=2, repeats=2)
    measure(pair, params, tmp_path / "generations.jsonl")
    _warming_up, _expected, *lines = capsys.readouterr().out.splitlines()
    assert all(tells(line, f"prompt {done} 4") for done, line in enumerate(lines, start=1))
    assert len(lines) == 4
    assert tells(lines[-1], "0 s")


# The summary

# temperature, strategy, budget -> prompt -> repeats of (tokens, rounds, decode_ms)
BY_HAND = {
    (1.0, "tree", 4): {0: [(10, 4, 400.0)], 1: [(10, 5, 600.0)]},
    (1.0, "tree", 16): {0: [(10, 4, 800.0)], 1: [(10, 4, 800.0)]},
    (1.0, "autoregressive", 0): {0: [(10, 10, 1000.0)], 1: [(10, 10, 1000.0)]},
    (1.0, "chain", 0): {0: [(6, 3, 300.0), (4, 2, 200.0)], 1: [(5, 2, 250.0), (5, 3, 250.0)]},
    (0.0, "autoregressive", 0): {0: [(8, 8, 800.0)], 1: [(2, 2, 400.0)]},
    (0.0, "tree", 16): {0: [(8, 2, 400.0)], 1: [(2, 1, 200.0)]},
}
STAGE_MS = dict(zip(STAGES, (8.0, 1.0, 1.0, 30.0, 5.0, 5.0), strict=True))  # draft and verify are 38 of 50


def by_hand() -> Measurements:
    generations, rounds = [], []
    for (temperature, strategy, budget), prompts in BY_HAND.items():
        label = f"tree {budget}/4" if strategy == "tree" else strategy
        setting = {"temperature": temperature, "label": label, "strategy": strategy, "budget": budget}
        for prompt, repeats in prompts.items():
            for repeat, (tokens, count, decode_ms) in enumerate(repeats):
                where = setting | {"prompt": prompt, "repeat": repeat}
                generations.append(where | {"tokens": tokens, "rounds": count, "decode_ms": decode_ms})
                own = STAGE_MS if strategy == "tree" else {stage: 10.0 for stage in STAGES}
                rounds.append(where | {"round": 0} | {f"{stage}_ms": ms for stage, ms in own.items()})
    return Measurements(pd.DataFrame(generations), pd.DataFrame(rounds), 2, 2, "", None)


@pytest.fixture(scope="module")
def summary() -> pd.DataFrame:
    return summarise(by_hand(), resamples=2000, seed=0)


def values(summary: pd.DataFrame, temperature: float, label: str, name: str) -> tuple[float, float, float]:
    row = summary.set_index(["temperature", "label"]).loc[(temperature, label)]
    return tuple(float(row[f"{name}{end}"]) for end in ("", "_lo", "_hi"))


def test_summary_is_in_reading_order(summary: pd.DataFrame) -> None:
    assert list(zip(summary["temperature"], summary["label"], strict=True)) == [
        (0.0, "autoregressive"),
        (0.0, "tree 16/4"),
        (1.0, "autoregressive"),
        (1.0, "chain"),
        (1.0, "tree 4/4"),
        (1.0, "tree 16/4"),
    ]
    assert summary.index.tolist() == list(range(6))


def test_summary_by_hand(summary: pd.DataFrame) -> None:
    """With two prompts a quarter of the resamples are one prompt twice, so the interval ends at the two prompts."""
    assert values(summary, 1.0, "tree 4/4", "tokens_per_s") == pytest.approx((20, 10 / 0.6, 25))
    assert values(summary, 1.0, "tree 4/4", "speedup") == pytest.approx((2, 10 / 6, 2.5))
    assert values(summary, 1.0, "tree 4/4", "acceptance") == pytest.approx((20 / 9, 2, 2.5))
    assert values(summary, 1.0, "tree 16/4", "speedup") == pytest.approx((1.25, 1.25, 1.25))
    assert values(summary, 0.0, "tree 16/4", "tokens_per_s") == pytest.approx((10 / 0.6, 10, 20))
    assert values(summary, 0.0, "tree 16/4", "speedup") == pytest.approx((2, 2, 2)), "against its own temperature"
    for temperature in (0.0, 1.0):
        assert values(summary, temperature, "autoregressive", "speedup") == (1, 1, 1)
        assert values(summary, temperature, "autoregressive", "acceptance") == (1, 1, 1)


def test_repeats_of_a_prompt_are_pooled(summary: pd.DataFrame) -> None:
    assert values(summary, 1.0, "chain", "tokens_per_s") == pytest.approx((20, 20, 20))
    assert values(summary, 1.0, "chain", "acceptance") == pytest.approx((2, 2, 2))
    row = summary[summary["label"] == "chain"].iloc[0]
    assert (row["tokens"], row["rounds"]) == (20, 10)


def test_overhead_is_what_lies_outside_draft_and_verify(summary: pd.DataFrame) -> None:
    shares = summary.groupby("strategy")["overhead_share"].unique()
    assert shares["tree"] == pytest.approx([12 / 50])
    assert shares["chain"] == pytest.approx([4 / 6])


def test_metrics_of_a_summary(summary: pd.DataFrame) -> None:
    metrics = metrics_of(summary)
    assert set(metrics) == {"speedup", "overhead_share", "best_tree", "summary"}
    assert {temperature: set(labels) for temperature, labels in metrics["speedup"].items()} == {
        "0": {"autoregressive", "tree 16/4"},
        "1": {"autoregressive", "chain", "tree 4/4", "tree 16/4"},
    }
    assert metrics["speedup"]["1"]["tree 4/4"] == pytest.approx({"value": 2, "low": 10 / 6, "high": 2.5})
    assert metrics["overhead_share"]["1"]["tree 4/4"] == pytest.approx(0.24)
    assert {t: best["label"] for t, best in metrics["best_tree"].items()} == {"0": "tree 16/4", "1": "tree 4/4"}
    assert metrics["best_tree"]["1"]["speedup"] == pytest.approx(2)
    assert len(metrics["summary"]) == 6
    json.dumps(metrics, default=lambda number: number.item(), allow_nan=False)
