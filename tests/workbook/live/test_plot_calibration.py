"""The reliability figure: a panel for each temperature, a line for each depth, intervals of the right length."""

import pandas as pd
import pytest
from ddtree.workbook.live.plots import draw_reliability
from wording import names, tells


def table() -> pd.DataFrame:
    rows = [
        # temperature, depth, draft, n, accepted, share, low, high
        (1.0, 1, 0.8, 10, 7, 0.7, 0.4, 0.9),
        (0.0, 1, 0.5, 20, 14, 0.7, 0.5, 0.85),
        (0.0, 1, 0.1, 80, 4, 0.05, 0.02, 0.12),
        (0.0, 3, 0.25, 4, 1, 0.25, 0.05, 0.7),
    ]
    return pd.DataFrame(
        rows, columns=["temperature", "depth", "draft", "n", "accepted", "share", "share_lo", "share_hi"]
    )


def test_a_panel_for_each_temperature_and_a_line_for_each_depth() -> None:
    figure = draw_reliability(table())
    assert [annotation.text for annotation in figure.layout.annotations] == ["T = 0", "T = 1"]
    lines = [trace for trace in figure.data if trace.name]
    assert [(trace.name, trace.yaxis) for trace in lines] == [
        ("depth 1", "y"),
        ("depth 3 and deeper", "y"),
        ("depth 1", "y2"),
    ]
    assert list(lines[0].x) == [0.1, 0.5]
    assert list(lines[0].y) == [0.05, 0.7]
    assert list(lines[0].error_y.array) == pytest.approx([0.07, 0.15])
    assert list(lines[0].error_y.arrayminus) == pytest.approx([0.03, 0.2])
    assert [trace.showlegend for trace in lines] == [True, True, False]


def test_each_panel_has_the_diagonal() -> None:
    diagonals = [trace for trace in draw_reliability(table()).data if not trace.name]
    assert [(list(trace.x), list(trace.y), trace.yaxis) for trace in diagonals] == [
        ([0, 1], [0, 1], "y"),
        ([0, 1], [0, 1], "y2"),
    ]


def test_title_weighs_bins_by_their_nodes() -> None:
    """At T = 0: (80 * .1 + 20 * .5 + 4 * .25) / 104 predicted, 19 of 104 accepted."""
    title = draw_reliability(table()).layout.title.text.replace(" <br>", " ")
    assert tells(title, "18% 18% T = 0 80% 70% T = 1")


def test_a_missing_column_and_an_empty_frame_are_refused() -> None:
    with pytest.raises(ValueError, match=names("table share_lo")):
        draw_reliability(table().drop(columns="share_lo"))
    with pytest.raises(ValueError, match=names("table rows")):
        draw_reliability(table().iloc[:0])
