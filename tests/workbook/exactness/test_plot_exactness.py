"""Goodness of fit: each count at its ratio, the binomial band around 1, and a title that says what is inside."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from ddtree.workbook.exactness.plots import draw_goodness_of_fit, inside_band
from ddtree.workbook.theme import temperature_colour
from scipy.stats import binom
from wording import names, tells


def cells() -> pd.DataFrame:
    rows = [
        # rule, temperature, filter, tree, expected, seen: a distribution of two tokens, 100 draws
        ("target-only", 0.3, "none", "tree 16/4", 80.0, 78.0),
        ("target-only", 0.3, "none", "tree 16/4", 20.0, 22.0),
        ("target-only", 1.5, "none", "tree 16/4", 50.0, 54.0),
        ("target-only", 1.5, "none", "tree 16/4", 50.0, 46.0),
        ("target-only", 1.5, "none", "chain", 50.0, 1.0),
        ("target-only", 1.5, "both", "tree 16/4", 50.0, 1.0),
        ("siblings counted twice", 1.5, "none", "tree 16/4", 50.0, 100.0),
        ("siblings counted twice", 1.5, "none", "tree 16/4", 50.0, 0.0),
    ]
    return pd.DataFrame(rows, columns=["rule", "temperature", "filter", "tree", "expected", "seen"])


def points(figure: go.Figure) -> dict[str, go.Scatter]:
    return {trace.name: trace for trace in figure.data if trace.mode == "markers"}


def test_points_are_ratios_of_the_controls_tree_unfiltered() -> None:
    found = points(draw_goodness_of_fit(cells()))
    assert list(found) == ["T = 0.3", "T = 1.5", "siblings counted twice"]
    assert list(found["T = 0.3"].x) == [80, 20]
    assert list(found["T = 0.3"].y) == pytest.approx([0.975, 1.1])
    assert list(found["T = 1.5"].y) == pytest.approx([1.08, 0.92])
    assert found["T = 1.5"].marker.color == temperature_colour(1.5)


def test_controls_have_their_own_panel_and_a_count_of_0_is_half_a_count() -> None:
    control = points(draw_goodness_of_fit(cells()))["siblings counted twice"]
    assert control.yaxis == "y2"
    assert list(control.y) == pytest.approx([2.0, 0.01])
    assert list(control.customdata) == [[100], [0]], "the hover text says what was seen"


def test_band_is_the_binomials() -> None:
    figure = draw_goodness_of_fit(cells())
    band = figure.data[0]
    assert band.fill == "toself"
    half = len(band.x) // 2
    for place in (0, 100, 199):
        expected = band.x[place]
        assert band.y[place] == pytest.approx(binom.ppf(0.975, 100, expected / 100) / expected)
        assert band.y[2 * half - 1 - place] == pytest.approx(max(0.5, binom.ppf(0.025, 100, expected / 100)) / expected)


def test_inside_is_counted_by_the_same_band() -> None:
    """Of 100 draws at one half, 40 to 60 are inside."""
    assert [binom.ppf(q, 100, 0.5) for q in (0.025, 0.975)] == [40, 60]
    frame = pd.DataFrame({"rule": "r", "temperature": 1.0, "filter": "none", "tree": "t", "expected": [50.0, 50.0]})
    for seen, inside in ((39, False), (40, True), (60, True), (61, False)):
        assert inside_band(frame.assign(seen=[seen, 100.0 - seen])).tolist() == [inside, inside]


def test_title_counts_both() -> None:
    title = draw_goodness_of_fit(cells()).layout.title.text.replace(" <br>", " ")
    assert tells(title, "100% 4 0%")
    spoiled = cells().assign(seen=lambda f: f["seen"].where(f["expected"] != 80, np.array(10.0)))
    assert tells(draw_goodness_of_fit(spoiled).layout.title.text, "75% 4")


def test_without_controls_there_is_one_panel_with_every_tree() -> None:
    alone = cells().query("rule == 'target-only'")
    figure = draw_goodness_of_fit(alone)
    assert [annotation.text for annotation in figure.layout.annotations] == ["the verify in use"]
    assert "controls" not in figure.layout.title.text
    assert len(points(figure)["T = 1.5"].x) == 3


def test_a_missing_column_and_an_empty_frame_are_refused() -> None:
    with pytest.raises(ValueError, match=names("cells seen")):
        draw_goodness_of_fit(cells().drop(columns="seen"))
    with pytest.raises(ValueError, match=names("cells rows")):
        draw_goodness_of_fit(cells().iloc[:0])
    with pytest.raises(ValueError, match=names("cells rows")):
        draw_goodness_of_fit(cells().query("rule != 'target-only'"))
