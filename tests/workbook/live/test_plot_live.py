"""Speed and acceptance figures: every number of the summary where it belongs, and titles computed from them."""

import pandas as pd
import plotly.graph_objects as go
import pytest
from ddtree.workbook.live.plots import draw_acceptance, draw_speed
from ddtree.workbook.theme import strategy_colour
from plot_frames import summary
from wording import names, tells


def title_of(figure: go.Figure) -> str:
    return figure.layout.title.text.replace("<br>", "")


def test_speed_has_a_panel_for_each_temperature_with_values_and_interval_lengths() -> None:
    figure = draw_speed(summary())
    points = [trace for trace in figure.data if trace.mode == "markers"]
    assert [annotation.text for annotation in figure.layout.annotations] == ["T = 0", "T = 1"]
    assert [list(trace.y) for trace in points] == [["autoregressive", "chain", "tree 16/4"]] * 2
    assert [list(trace.x) for trace in points] == [[20, 24, 30], [20, 18, 22]]
    assert list(points[0].error_x.array) == [1, 1, 4]
    assert list(points[0].error_x.arrayminus) == [1, 2, 3]
    assert list(points[0].marker.color) == [strategy_colour(s) for s in ("autoregressive", "chain", "tree")]


def test_speed_up_is_written_beyond_each_interval() -> None:
    texts = [trace for trace in draw_speed(summary()).data if trace.mode == "text"]
    assert [text.strip() for text in texts[1].text] == ["1.00×", "0.90×", "1.10×"]
    assert list(texts[1].x) == [21, 19, 25]


def test_the_speed_of_autoregressive_decoding_is_a_line_through_each_panel() -> None:
    assert [shape.x0 for shape in draw_speed(summary()).layout.shapes] == [20, 20]


def test_speed_title_says_the_speed_up_and_marks_one_that_may_be_none() -> None:
    figure = draw_speed(summary())
    assert tells(title_of(figure), "1.5× T = 0 1.1× (±) T = 1")
    assert tells(figure.layout.title.subtitle.text, "(±) 1")


def test_speed_title_names_the_best_of_several_trees() -> None:
    better = summary().query("strategy == 'tree'").assign(label="tree 8/4", budget=8, speedup=1.65, speedup_hi=1.7)
    better["speedup_lo"] = 1.6
    figure = draw_speed(pd.concat([summary(), better]))
    assert tells(title_of(figure), "1.6× T = 0 1.6× T = 1")
    assert list(figure.data[0].y) == ["autoregressive", "chain", "tree 8/4", "tree 16/4"]


def test_a_run_without_drafting_speaks_of_itself() -> None:
    alone = summary().query("strategy == 'autoregressive'")
    assert tells(title_of(draw_speed(alone)), "20.0")
    assert tells(title_of(draw_acceptance(alone)), "1")


def test_acceptance_runs_over_temperature_with_interval_lengths() -> None:
    figure = draw_acceptance(summary())
    assert [trace.name for trace in figure.data] == ["autoregressive", "chain", "tree 16/4"]
    tree = figure.data[2]
    assert list(tree.x) == [0, 1]
    assert list(tree.y) == [3.0, 2.0]
    assert list(tree.error_y.array) == pytest.approx([0.3, 0.2])
    assert list(tree.error_y.arrayminus) == pytest.approx([0.2, 0.1])
    assert tells(title_of(figure), "3.0 T = 0 2.0 T = 1")
    assert figure.layout.xaxis.title.text == "temperature"
    assert figure.layout.yaxis.title.text == "tokens per round"


def test_trees_of_one_colour_differ_in_dash_and_symbol() -> None:
    other = summary().query("strategy == 'tree'").assign(label="tree 8/4", budget=8)
    small, large = draw_acceptance(pd.concat([summary(), other])).data[2:]
    assert (small.name, large.name) == ("tree 8/4", "tree 16/4")
    assert small.line.color == large.line.color
    assert small.line.dash != large.line.dash
    assert small.marker.symbol != large.marker.symbol


def test_a_missing_column_an_empty_frame_and_a_value_outside_its_interval_are_refused() -> None:
    with pytest.raises(ValueError, match=names("speedup_lo")):
        draw_speed(summary().drop(columns="speedup_lo"))
    with pytest.raises(ValueError, match=names("summary rows")):
        draw_acceptance(summary().iloc[:0])
    with pytest.raises(ValueError, match=names("tokens_per_s chain 0 24 22 23")):
        draw_speed(summary().assign(tokens_per_s_hi=lambda s: s["tokens_per_s_hi"].where(s["tokens_per_s"] != 24, 23)))
