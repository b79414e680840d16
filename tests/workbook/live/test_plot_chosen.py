"""The figure of the chosen budget: shares and medians that follow from six rounds by hand."""

import pandas as pd
import pytest
from ddtree.adaptive_budget import RoundCost
from ddtree.workbook.live.plots import draw_budget_choices
from wording import names, tells

COST = RoundCost((0, 2, 4), (10.0, 12.0, 20.0), baseline_ms=8.0)
ROUNDS = pd.DataFrame({"temperature": [0.0, 0.0, 0.0, 1.0, 1.0, 1.0], "tree_size": [5, 5, 3, 1, 2, 3]})


def test_shares_are_of_rounds_that_chose_so_many_or_fewer() -> None:
    cost, cold, hot = draw_budget_choices(ROUNDS, COST).data
    assert (list(cost.x), list(cost.y)) == ([0, 2, 4], [10.0, 12.0, 20.0])
    assert list(cold.y) == pytest.approx([0, 0, 1 / 3, 1 / 3, 1])
    assert list(hot.y) == pytest.approx([1 / 3, 2 / 3, 1, 1, 1])


def test_title_names_the_median_of_each_temperature() -> None:
    title = draw_budget_choices(ROUNDS, COST).layout.title.text.replace("<br>", "")
    assert tells(title, "4 T = 0")
    assert tells(title, "1 T = 1")


def test_nothing_to_draw_is_said() -> None:
    with pytest.raises(ValueError, match=names("rows")):
        draw_budget_choices(ROUNDS.iloc[:0], COST)
