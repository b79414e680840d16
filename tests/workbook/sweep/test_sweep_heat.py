"""What heat costs: the parts of a slow-down by hand, and entropy's part told from temperature's own."""

import math
from itertools import product

import numpy as np
import pandas as pd
import pytest
from ddtree.workbook.sweep.analysis import ALL, PARTS, beyond_entropy, entropy_bins, explain, split_slowdown
from sweep_folder import STAGES, by_hand
from wording import tells

BOOTSTRAP = (400, 3)
COLD = {"draft": 10.0, "verify": 38.0, "sample": 2.0}  # milliseconds of a round
HOT = {"draft": 10.0, "verify": 40.0, "sample": 10.0}


def heated(
    cold_tokens: list[int], hot_tokens: list[int], *, hot: dict[str, float] = HOT, prompts: int = 3
) -> pd.DataFrame:
    rows = []
    for temperature, tokens, times in ((0.0, cold_tokens, COLD), (1.0, hot_tokens, hot)):
        stages = {f"{stage}_ms": times.get(stage, 0.0) for stage in STAGES}
        for prompt in range(prompts):
            place = {"temperature": temperature, "prompt": prompt, **stages}
            rows.append({"label": "autoregressive", **place})
            rows += [{"label": "tree 4", "budget": 4, "emitted": n, **place} for n in tokens]
    return by_hand(rows)


def tree(rounds: pd.DataFrame) -> dict[str, object]:
    return split_slowdown(rounds, BOOTSTRAP).set_index("label", drop=False).loc["tree 4"].to_dict()


def test_speed_is_the_product_of_fewer_tokens_and_longer_rounds() -> None:
    row = tree(heated([3, 3], [2, 2]))
    assert (row["cold"], row["hot"], row["prompts"]) == (0, 1, 3)
    assert (row["tokens_per_s_cold"], row["tokens_per_s_hot"]) == pytest.approx((60, 2000 / 60))
    assert (row["acceptance_cold"], row["acceptance_hot"]) == (3, 2)
    assert (row["round_ms_cold"], row["round_ms_hot"]) == (50, 60)
    assert (row["fewer"], row["longer"]) == pytest.approx((2 / 3, 50 / 60))
    assert row["speed"] == pytest.approx(2 / 3 * 50 / 60)


def test_shares_are_those_of_the_logarithm() -> None:
    row = tree(heated([3, 3], [2, 2]))
    share = math.log(2 / 3) / math.log(2 / 3 * 50 / 60)
    assert row["clear"]
    assert row["share_acceptance"] == pytest.approx(share)
    assert row["share_time"] == pytest.approx(1 - share)


@pytest.mark.parametrize(("cold", "hot"), list(product([[3, 1], [2, 5]], [[1, 1], [4, 4]])))
def test_parts_add_up_to_the_whole(cold: list[int], hot: list[int]) -> None:
    row = tree(heated(cold, hot))
    assert sum(row[f"part_{part}"] for part in PARTS) == pytest.approx(math.log(row["speed"]))


def test_a_stage_has_its_share_of_the_change_of_round_time() -> None:
    row = tree(heated([3, 3], [2, 2]))
    assert row["part_sample"] == pytest.approx(8 / 10 * math.log(50 / 60))
    assert row["part_verify"] == pytest.approx(2 / 10 * math.log(50 / 60))
    assert row["part_draft"] == row["part_build"] == 0


def test_rounds_of_equal_time_leave_all_to_acceptance() -> None:
    row = tree(heated([3, 3], [2, 2], hot=COLD))
    assert row["share_acceptance"] == 1
    assert [row[f"part_{stage}"] for stage in STAGES] == [0] * 6


def test_stages_that_trade_places_cancel_in_a_round_of_equal_time() -> None:
    row = tree(heated([3, 3], [2, 2], hot={"draft": 10, "verify": 36, "sample": 4}))
    assert row["part_verify"] == pytest.approx(2 / 50)
    assert row["part_sample"] == pytest.approx(-2 / 50)


def test_the_finding_is_said_in_plain_words() -> None:
    assert tells(
        explain(tree(heated([3, 3], [2, 2]))),
        "T = 0 T = 1 4 60.0 33.3 0.56 0.56 0.56 69% 69% 69% loss 3.00 2.00 31% 31% 31% 50.0 60.0 ms sample",
    )
    gain = tree(heated([2, 2], [3, 3], hot=COLD))
    assert tells(explain(gain), "100% 100% 100% gain")
    assert tells(explain(gain), "0% 0% 0% 50.0 50.0 ms")


def test_no_clear_change_is_not_shared_out() -> None:
    rounds = heated([2, 2], [2, 2], hot=COLD)
    hot_tree = (rounds["temperature"] == 1) & (rounds["label"] == "tree 4")
    rounds.loc[hot_tree, "emitted"] = rounds.loc[hot_tree, "prompt"] + 1  # 1, 2, 3: on average as before
    row = tree(rounds)
    assert not row["clear"]
    assert math.isnan(row["share_acceptance"])
    assert tells(explain(row), "no")
    assert "%" not in explain(row)


def test_one_prompt_gives_no_interval_to_share_out() -> None:
    row = tree(heated([3, 3], [2, 2], prompts=1))
    assert not row["clear"]
    assert tells(explain(row), "one prompt")
    assert "%" not in explain(row)


def test_only_decoders_with_both_ends_are_split() -> None:
    rounds = heated([3, 3], [2, 2])
    lone = rounds.query("label == 'tree 4' and temperature == 0").assign(label="tree 8", budget=8)
    assert split_slowdown(pd.concat([rounds, lone]), BOOTSTRAP)["label"].tolist() == ["autoregressive", "tree 4"]
    assert split_slowdown(rounds.query("temperature == 1"), BOOTSTRAP).empty


def spread(
    effect: float, *, temperatures: tuple[float, ...] = (0.5, 1.0), prompts: int = 4, noise: float = 0.0
) -> pd.DataFrame:
    """Offered mass falls by 0.2 a nat, hot rounds have more entropy, and `effect` at the highest temperature."""
    stream = np.random.default_rng(0)
    rows = []
    for temperature, prompt in product(temperatures, range(prompts)):
        for entropy in stream.gamma(1.5, temperature, size=60).clip(0, 4):
            offered = 0.9 - 0.2 * entropy + effect * (temperature == max(temperatures)) + noise * stream.normal()
            place = {"label": "tree 4", "temperature": temperature, "prompt": prompt}
            rows.append(place | {"entropy": entropy, "offered": offered, "emitted": 2})
    return by_hand(rows)


def test_a_planted_effect_of_temperature_is_found_at_equal_entropy() -> None:
    rounds = spread(-0.05)
    beyond = beyond_entropy(rounds, BOOTSTRAP)
    means = rounds.groupby("temperature")["offered"].mean()
    assert (beyond.cold, beyond.hot, beyond.prompts) == (0.5, 1.0, 4)
    assert beyond.temperature.value == pytest.approx(-0.05)
    assert beyond.change.value == pytest.approx(means[1.0] - means[0.5])
    assert beyond.entropy.value == pytest.approx(beyond.change.value + 0.05)
    assert tells(beyond.verdict, "lowers")
    assert tells(beyond.explain(), "-5.0 -5.0 -5.0")


def test_entropy_alone_leaves_nothing_to_temperature() -> None:
    beyond = beyond_entropy(spread(0.0), BOOTSTRAP)
    assert beyond.temperature.value == pytest.approx(0, abs=1e-9)
    assert beyond.change.value < -0.05
    assert tells(beyond.verdict, "less")


def test_noise_that_hides_an_effect_is_said() -> None:
    beyond = beyond_entropy(spread(0.0, noise=0.5), BOOTSTRAP)
    assert beyond.temperature.low < 0 < beyond.temperature.high
    assert tells(beyond.verdict, "no")


def test_greedy_rounds_and_a_single_temperature_are_not_compared() -> None:
    assert beyond_entropy(spread(0.0, temperatures=(0.0, 1.0)), BOOTSTRAP) is None
    assert beyond_entropy(spread(0.0, temperatures=(0.0,)), BOOTSTRAP) is None
    assert tells(beyond_entropy(spread(0.0, prompts=1), BOOTSTRAP).verdict, "One prompt")


def test_bins_hold_means_of_their_rounds_for_each_temperature_and_for_all_sampled() -> None:
    rows = [
        {"label": "tree 4", "temperature": t, "prompt": p, "entropy": e, "offered": o, "emitted": n}
        for t, p, e, o, n in [
            (0.0, 0, 0.0, 1.0, 4),
            (0.5, 0, 0.05, 0.9, 3),
            (0.5, 1, 0.4, 0.6, 2),
            (1.0, 0, 0.6, 0.4, 1),
            (1.0, 1, 9.0, 0.1, 1),
        ]
    ]
    bins = entropy_bins(by_hand(rows), BOOTSTRAP)
    together = bins[bins["temperature"] == ALL]
    assert together["bin"].tolist() == [0, 2, 6]
    assert together["rounds"].tolist() == [1, 2, 1]
    assert together["entropy"].tolist() == pytest.approx([0.05, 0.5, 9.0])
    assert together["offered"].tolist() == pytest.approx([0.9, 0.5, 0.1])
    assert together["accepted"].tolist() == pytest.approx([2, 0.5, 0])
    middle = together[together["bin"] == 2].iloc[0]
    assert (middle["offered_lo"], middle["offered_hi"]) == pytest.approx((0.4, 0.6))
    greedy = bins[bins["temperature"] == 0]
    assert greedy[["bin", "offered", "accepted"]].to_numpy().tolist() == [[0, 1.0, 3.0]]
