"""Figures over rounds: shares, counts and times that follow from a handful of rounds by hand."""

import math

import pandas as pd
import plotly.graph_objects as go
import pytest
from ddtree.workbook.live.plots import draw_acceptance_by_depth, draw_histogram, draw_stage_times
from ddtree.workbook.theme import strategy_colour, temperature_colour
from plot_frames import STAGE_MS, rounds


def title_of(figure: go.Figure) -> str:
    return figure.layout.title.text.replace("<br>", "")


def wilson(count: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    centre = (count + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * math.sqrt(count * (n - count) / n + z * z / 4)
    return centre - half, centre + half


def test_depth_curves_are_shares_of_rounds_for_each_temperature_and_label() -> None:
    curves = {trace.name: trace for trace in draw_acceptance_by_depth(rounds()).data}
    assert list(curves) == ["T = 0, chain", "T = 0, tree 16/4", "T = 1, chain", "T = 1, tree 16/4"]
    assert list(curves["T = 0, tree 16/4"].x) == [1, 2, 3]
    assert list(curves["T = 0, tree 16/4"].y) == [0.75, 0.5, 0.25]
    assert list(curves["T = 0, chain"].y) == [0.5, 0.25, 0.0]
    assert list(curves["T = 1, tree 16/4"].y) == [0.5, 0.0, 0.0]


def test_depth_curves_carry_wilson_intervals() -> None:
    tree = draw_acceptance_by_depth(rounds()).data[1]
    for count, above, below in zip([3, 2, 1], tree.error_y.array, tree.error_y.arrayminus, strict=True):
        low, high = wilson(count, 4)
        assert count / 4 + above == pytest.approx(high, abs=1e-5)
        assert count / 4 - below == pytest.approx(low, abs=1e-5)
    none = draw_acceptance_by_depth(rounds()).data[0]
    assert none.error_y.arrayminus[2] == 0.0


def test_depth_curves_tell_temperature_by_colour_and_strategy_by_dash() -> None:
    chain, tree, _, hot_tree = draw_acceptance_by_depth(rounds()).data
    assert chain.line.color == tree.line.color == temperature_colour(0.0)
    assert hot_tree.line.color == temperature_colour(1.0)
    assert (chain.line.dash, tree.line.dash) == ("dot", "solid")


def test_depth_title_is_the_share_with_any_draft_accepted() -> None:
    assert title_of(draw_acceptance_by_depth(rounds())) == "Tree 16/4: a draft accepted in 75% at T = 0, 50% at T = 1"


def test_histogram_counts_tokens_in_panels_with_chain_beside_tree() -> None:
    figure = draw_histogram(rounds())
    assert [annotation.text for annotation in figure.layout.annotations] == ["T = 0", "T = 1"]
    assert [trace.name for trace in figure.data] == ["chain", "tree 16/4"] * 2
    assert [trace.yaxis for trace in figure.data] == ["y", "y", "y2", "y2"]
    assert all(list(trace.x) == [1, 2, 3, 4] for trace in figure.data)
    assert [list(trace.y) for trace in figure.data] == [
        [0.5, 0.25, 0.25, 0],
        [0.25, 0.25, 0.25, 0.25],
        [0.75, 0.25, 0, 0],
        [0.5, 0.5, 0, 0],
    ]
    assert [trace.showlegend for trace in figure.data] == [True, True, False, False]
    assert figure.data[1].marker.color == strategy_colour("tree")


def test_histogram_title_compares_the_upper_half_of_the_trees_rounds() -> None:
    figure = draw_histogram(rounds())  # the tree's median at T = 0 is 2.5 tokens
    assert title_of(figure) == "Rounds of 3 tokens or more at T = 0: tree 16/4 50%, chain 25%"
    assert figure.layout.title.subtitle.text.startswith("At T = 1: tree 16/4 0%, chain 0%.")


def test_histogram_title_speaks_of_a_tree_that_was_measured_at_the_lowest_temperature() -> None:
    larger = rounds().query("temperature == 1 and strategy == 'tree'").assign(label="tree 32/4")
    figure = draw_histogram(pd.concat([rounds(), larger]))
    assert title_of(figure) == title_of(draw_histogram(rounds()))


def test_stage_bars_are_mean_times_stacked_in_the_order_of_a_round() -> None:
    figure = draw_stage_times(rounds())
    bars = [trace for trace in figure.data if trace.type == "bar" and trace.yaxis == "y"]
    assert [trace.legendgroup for trace in bars] == ["draft", "build", "compile", "verify", "sample", "commit"]
    assert figure.layout.barmode == "stack"
    for trace in bars:
        for label, mean in zip(trace.y, trace.x, strict=True):
            assert mean == pytest.approx(STAGE_MS[label][trace.legendgroup])


def test_stage_bars_end_in_their_total_and_share_of_overhead() -> None:
    ends = next(trace for trace in draw_stage_times(rounds()).data if trace.type == "scatter")
    texts = dict(zip(ends.y, ends.text, strict=True))
    assert texts["tree 16/4"].strip() == "80 ms, 15%"
    assert texts["autoregressive"].strip() == "42 ms, 5%"
    assert dict(zip(ends.y, ends.x, strict=True))["chain"] == pytest.approx(62)


def test_stage_title_is_the_overhead_and_the_largest_stage() -> None:
    figure = draw_stage_times(rounds())
    assert title_of(figure) == "Tree 16/4: overhead 15% of a round, verify 75%"
    assert "Largest stage of overhead: sample, 5.00 ms" in figure.layout.title.subtitle.text.replace(" <br>", " ")


def test_the_first_label_stands_on_top_of_each_panel() -> None:
    axis = draw_stage_times(rounds()).layout.yaxis
    assert list(axis.categoryarray) == ["autoregressive", "chain", "tree 16/4"]
    assert axis.range[0] > axis.range[1]


def test_rounds_without_drafts_or_columns_are_refused() -> None:
    alone = rounds().query("strategy == 'autoregressive'")
    for draw in (draw_acceptance_by_depth, draw_histogram):
        with pytest.raises(ValueError, match="only autoregressive rounds"):
            draw(alone)
    with pytest.raises(ValueError, match="rounds lacks the columns build_ms"):
        draw_stage_times(rounds().drop(columns="build_ms"))
