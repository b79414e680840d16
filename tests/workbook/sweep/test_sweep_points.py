"""Points, best budgets and depths of a sweep: values that follow from a handful of rounds by hand."""

import numpy as np
import pandas as pd
import pytest
from ddtree.workbook.stats import resampled_prompts
from ddtree.workbook.sweep.analysis import (
    accepted_depths,
    compare_budgets,
    describe_auto,
    describe_best,
    mark_front,
    measure_cells,
    measure_points,
    reference_label,
)
from sweep_folder import by_hand
from wording import names, tells

BOOTSTRAP = (400, 3)


def decoded(label: str, *rounds: tuple[int, int, float], **place: object) -> list[dict[str, object]]:
    """Rounds of (prompt, tokens, milliseconds)."""
    return [{"label": label, "prompt": prompt, "emitted": tokens, "ms": ms} | place for prompt, tokens, ms in rounds]


def two_cells() -> pd.DataFrame:
    """Budget 4 in the cell a, budget 8 in the cell b, where the machine takes twice as long for everything."""
    return by_hand(
        [
            *decoded("autoregressive", (0, 1, 10), (0, 1, 10), (1, 1, 10), (1, 1, 10), cell="a"),
            *decoded("tree 4", (0, 2, 16), (1, 1, 16), (1, 1, 16), cell="a", budget=4),
            *decoded("autoregressive", (0, 1, 20), (0, 1, 20), (1, 1, 20), (1, 1, 20), cell="b"),
            *decoded("tree 8", (0, 2, 40), (1, 2, 40), cell="b", budget=8),
        ]
    )


def test_a_points_speed_is_that_of_its_rounds_and_its_speed_up_that_over_its_own_cell() -> None:
    points = measure_points(two_cells(), BOOTSTRAP).set_index("label")
    assert list(points.index) == ["autoregressive", "tree 4", "tree 8"]
    assert points["tokens_per_s"].to_dict() == pytest.approx(
        {"autoregressive": 8 / 0.12, "tree 4": 4 / 0.048, "tree 8": 50}
    )
    assert points["speedup"].to_dict() == pytest.approx({"autoregressive": 1, "tree 4": 40 / 48, "tree 8": 1})
    assert points["acceptance"].to_dict() == pytest.approx({"autoregressive": 1, "tree 4": 4 / 3, "tree 8": 2})
    assert points["round_ms"].to_dict() == pytest.approx({"autoregressive": 15, "tree 4": 16, "tree 8": 40})
    assert points.loc["autoregressive", ["cells", "prompts", "rounds", "tokens"]].tolist() == [2, 2, 8, 8]


def test_intervals_resample_prompts_on_both_sides_of_a_speed_up() -> None:
    tree = measure_points(two_cells(), BOOTSTRAP).set_index("label").loc["tree 4"]
    weights = resampled_prompts(2, *BOOTSTRAP)
    drawn = (weights @ [2, 2]) / (weights @ [16, 32]) / ((weights @ [2, 2]) / (weights @ [20, 20]))
    assert [tree["speedup_lo"], tree["speedup_hi"]] == pytest.approx(np.percentile(drawn, [2.5, 97.5]))


def test_one_prompt_has_no_interval() -> None:
    points = measure_points(two_cells().query("prompt == 0"), BOOTSTRAP)
    for name in ("tokens_per_s", "speedup", "acceptance", "round_ms"):
        assert points[f"{name}_lo"].tolist() == points[name].tolist() == points[f"{name}_hi"].tolist()


def test_seeds_are_pooled_and_slices_are_not() -> None:
    others = two_cells().replace({"cell": {"a": "a2", "b": "b2"}})
    repeated, apart = (pd.concat([two_cells(), more]) for more in (others, others.assign(slice="top-k cap 8")))
    pooled = measure_points(repeated, BOOTSTRAP)
    assert pooled["cells"].tolist() == [4, 2, 2]
    assert pooled["rounds"].tolist() == [16, 6, 4]
    assert pooled["speedup"].tolist() == pytest.approx(measure_points(two_cells(), BOOTSTRAP)["speedup"].tolist())
    assert measure_points(apart, BOOTSTRAP)["rounds"].tolist() == [8, 3, 2] * 2


def test_cells_keep_what_points_pool() -> None:
    cells = measure_cells(two_cells(), BOOTSTRAP).set_index(["cell", "label"])
    assert cells["rounds"].to_dict() == {
        ("a", "autoregressive"): 4, ("a", "tree 4"): 3, ("b", "autoregressive"): 4, ("b", "tree 8"): 2,
    }  # fmt: skip
    assert cells.loc[("b", "autoregressive"), "tokens_per_s"] == 50


def test_the_chosen_budget_stands_after_the_fixed_ones() -> None:
    budgets = {"autoregressive": 0, "tree auto": 64, "tree 8": 8, "tree 64": 64}
    rows = [{"label": label, "budget": budget} for label, budget in budgets.items()]
    points = measure_points(by_hand(rows), BOOTSTRAP)
    assert points["label"].tolist() == ["autoregressive", "tree 8", "tree 64", "tree auto"]


def speeds(trees: dict[str, list[float]], temperature: float = 0.0) -> pd.DataFrame:
    """One token a round, and for each tree the milliseconds of each prompt's round; autoregressive takes 10."""
    rows = []
    for label, times in trees.items():
        budget = 64 if label == "tree auto" else int(label.split()[1])
        here = {"cell": label, "temperature": temperature}
        rows += decoded("autoregressive", *((prompt, 1, 10.0) for prompt in range(len(times))), **here)
        rows += decoded(label, *((prompt, 1, ms) for prompt, ms in enumerate(times)), **here, budget=budget)
    return by_hand(rows)


def test_a_budget_that_is_slower_on_every_prompt_is_clearly_slower() -> None:
    budgets = compare_budgets(speeds({"tree 4": [8, 9, 8, 9], "tree 8": [9, 10, 9, 10]}), BOOTSTRAP).set_index("label")
    assert budgets["best"].to_dict() == {"tree 4": True, "tree 8": False}
    assert budgets["tied"].to_dict() == {"tree 4": True, "tree 8": False}
    assert budgets.loc["tree 8", "ratio"] == pytest.approx(34 / 38)
    assert tells(describe_best(budgets.reset_index(), 0.0), "4 T = 0")


def test_a_budget_that_wins_on_some_prompts_leaves_no_clear_winner() -> None:
    budgets = compare_budgets(speeds({"tree 4": [8, 12, 8, 12], "tree 8": [12, 9, 12, 8]}), BOOTSTRAP)
    assert budgets["tied"].all()
    assert tells(describe_best(budgets, 0.0), "no T = 0 4 8")


def test_one_prompt_makes_no_winner() -> None:
    assert compare_budgets(speeds({"tree 4": [8], "tree 8": [9]}), BOOTSTRAP)["tied"].all()


def test_the_chosen_budget_is_compared_but_never_best() -> None:
    budgets = compare_budgets(speeds({"tree auto": [5, 5], "tree 4": [8, 8], "tree 8": [10, 10]}, 0.6), BOOTSTRAP)
    assert budgets["label"].tolist() == ["tree 4", "tree 8", "tree auto"]
    assert budgets["best"].tolist() == [True, False, False]
    assert tells(describe_auto(budgets, 0.6), "1.60 T = 0.6 1.60 1.60 faster")
    assert tells(describe_best(budgets, 0.6), "4 T = 0.6")
    assert describe_auto(budgets.query("label != 'tree auto'"), 0.6) == ""


def test_budgets_are_compared_on_the_prompts_that_all_have() -> None:
    budgets = compare_budgets(speeds({"tree 4": [8, 8, 100], "tree 8": [9, 9]}), BOOTSTRAP).set_index("label")
    assert budgets["prompts"].tolist() == [2, 2]
    assert budgets.loc["tree 4", "best"]


def test_a_budget_without_a_rival_is_said_to_have_none() -> None:
    assert tells(describe_best(compare_budgets(speeds({"tree 4": [8, 8]}), BOOTSTRAP), 0.0), "4 T = 0 no")


def test_without_a_fixed_tree_there_is_nothing_to_compare() -> None:
    assert compare_budgets(by_hand(decoded("autoregressive", (0, 1, 10))), BOOTSTRAP).empty
    assert compare_budgets(speeds({"tree auto": [5, 5]}), BOOTSTRAP).empty


def point(label: str, temperature: float, speedup: float) -> dict[str, object]:
    return {"label": label, "strategy": label.split()[0], "temperature": temperature, "speedup": speedup}


def test_the_reference_is_the_tree_that_is_fastest_over_most_temperatures() -> None:
    points = [point("tree 4", 0, 2.0), point("tree 4", 1, 1.0), point("tree 8", 0, 1.5), point("tree 8", 1, 1.4)]
    lone, chain = point("tree 64", 0, 9.0), [point("chain", 0, 5.0), point("chain", 1, 5.0)]
    assert reference_label(pd.DataFrame([*points, lone, *chain])) == "tree 8"
    assert reference_label(pd.DataFrame([*chain, point("autoregressive", 0, 1)])) == "chain"
    with pytest.raises(ValueError, match=names("autoregressive")):
        reference_label(pd.DataFrame([point("autoregressive", 0, 1)]))


def test_depths_are_shares_of_rounds_with_intervals_over_prompts() -> None:
    tokens = {0: [1, 2, 3, 4], 1: [1, 1, 1, 2]}
    rounds = by_hand(decoded("tree 4", *((prompt, n, 1) for prompt, own in tokens.items() for n in own)))
    depths = accepted_depths(rounds, BOOTSTRAP)
    assert depths["depth"].tolist() == [1, 2, 3]
    assert depths["share"].tolist() == [4 / 8, 2 / 8, 1 / 8]
    assert (depths["share_lo"].iloc[0], depths["share_hi"].iloc[0]) == (1 / 4, 3 / 4)  # one prompt alone, or the other
    assert (depths["rounds"].iloc[0], depths["prompts"].iloc[0]) == (8, 2)


def test_the_front_is_what_no_other_of_its_temperature_beats() -> None:
    rows = [(0, 1.0, 40), (0, 2.0, 50), (0, 1.9, 60), (0, 3.0, 80), (1, 1.9, 60), (1, 1.9, 61)]
    marked = mark_front(pd.DataFrame(rows, columns=["temperature", "acceptance", "round_ms"]))
    assert marked["front"].tolist() == [True, True, False, True, True, False]
