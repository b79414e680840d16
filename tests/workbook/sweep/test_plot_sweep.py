"""Figures of a sweep: every number where it belongs, what is missing named, titles that claim no more than holds."""

import math
from itertools import product

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from ddtree.workbook.stats import Estimate
from ddtree.workbook.sweep.analysis import ALL, PARTS, BeyondEntropy
from ddtree.workbook.sweep.plots import (
    draw_acceptance_map,
    draw_budgets,
    draw_cost,
    draw_depths,
    draw_entropy,
    draw_slowdown,
    draw_speedup_map,
)
from ddtree.workbook.sweep.results import ONLY
from ddtree.workbook.theme import temperature_colour

SPEEDUPS = {  # value, low, high
    (0.0, "chain"): (1.5, 1.4, 1.6),
    (0.0, "tree 4"): (2.0, 1.8, 2.2),
    (0.0, "tree auto"): (1.8, 1.7, 1.9),
    (1.0, "chain"): (0.5, 0.4, 0.6),
    (1.0, "tree auto"): (1.1, 0.9, 1.2),
}


def title_of(figure: go.Figure) -> str:
    return figure.layout.title.text.replace(" <br>", " ")


def subtitle_of(figure: go.Figure) -> str:
    return figure.layout.title.subtitle.text.replace(" <br>", " ")


def points(slice_name: str = ONLY) -> pd.DataFrame:
    """Two tokens a round in 20 ms for each unit of speed-up; plain decoding takes 10 ms a token."""
    plain = {(t, "autoregressive"): (1.0, 1.0, 1.0) for t in (0.0, 1.0)}
    rows = []
    for (temperature, label), factors in (plain | SPEEDUPS).items():
        row = {
            "slice": slice_name,
            "temperature": temperature,
            "label": label,
            "strategy": label.split()[0],
            "budget": 0,
        }
        drafts = label != "autoregressive"
        for end, factor in zip(("", "_lo", "_hi"), factors, strict=True):
            row[f"speedup{end}"], row[f"tokens_per_s{end}"] = factor, 100 * factor
            row[f"acceptance{end}"] = 2 * factor if drafts else 1.0
            row[f"round_ms{end}"] = 20.0 if drafts else 10.0
        rows.append(row | {"cells": 1, "prompts": 4, "rounds": 9, "tokens": 9})
    return pd.DataFrame(rows)


MISSING = {(1.0, "tree 4"): "t1-b4: it ran out of memory", (1.0, "tree 64"): "t1-b64: not run"}


@pytest.mark.parametrize("draw", [draw_acceptance_map, draw_speedup_map])
def test_a_map_has_temperatures_down_and_budgets_across_with_the_missing_ones(draw) -> None:
    figure = draw(points(), MISSING, ONLY)
    assert list(figure.layout.xaxis.ticktext) == ["chain", "4", "64", "auto"]
    assert list(figure.layout.yaxis.ticktext) == ["0", "1"]
    assert figure.layout.yaxis.range[0] > figure.layout.yaxis.range[1]  # the lowest temperature on top
    factor = 2 if draw is draw_acceptance_map else 1
    heat = figure.data[0]
    written = [[text.rstrip("±") for text in row] for row in heat.text]
    assert written == [
        [f"{factor * 1.5:.2f}", f"{factor * 2.0:.2f}", "", f"{factor * 1.8:.2f}"],
        [f"{factor * 0.5:.2f}", "", "", f"{factor * 1.1:.2f}"],
    ]
    assert [[value is None for value in row] for row in heat.z] == [[not text for text in row] for row in heat.text]


def test_a_square_tells_its_interval_and_its_counts() -> None:
    hover = draw_speedup_map(points(), MISSING, ONLY).data[0].customdata[0][1]
    assert hover == (
        "T = 0, tree 4: 2.00 times autoregressive<br>95% interval 1.80 to 2.20<br>4 prompts, 9 rounds, 1 cells"
    )


def test_missing_squares_are_framed_named_and_explained() -> None:
    figure = draw_speedup_map(points(), MISSING, ONLY)
    words = figure.data[1]
    assert list(zip(words.x, words.y, words.text, strict=True)) == [(1, 1, "failed"), (2, 1, "not<br>run")]
    assert words.customdata[0] == ["T = 1, tree 4<br>t1-b4: it ran out of memory"]
    assert [(shape.x0 + shape.x1, shape.y0 + shape.y1) for shape in figure.layout.shapes] == [(2, 2), (4, 2)]
    assert len(draw_speedup_map(points(), {}, ONLY).data) == 1


def test_speed_ups_are_coloured_by_their_distance_from_one() -> None:
    heat = draw_speedup_map(points(), {}, ONLY).data[0]
    assert heat.zmin == -heat.zmax == -1
    assert heat.z[0][1] == -heat.z[1][0] == 1  # twice, and half
    assert [colour for place, colour in heat.colorscale if place == 0.5] == ["#F3F3F3"]
    ticks = dict(zip(heat.colorbar.ticktext, heat.colorbar.tickvals, strict=True))
    assert ticks["1×"] == 0
    assert ticks["0.5×"] == -1


def test_a_speed_up_that_may_be_none_is_marked_and_not_counted() -> None:
    figure = draw_speedup_map(points(), {}, ONLY)
    assert figure.data[0].text[1][2] == "1.10±"
    assert title_of(figure) == "Clearly faster in 3 of 5 squares, clearly slower in 1; most: 2.00× by tree 4 at T = 0"


def test_maps_name_their_setting_and_refuse_one_that_is_not_there() -> None:
    assert "Runs with top-k cap 8." in subtitle_of(draw_speedup_map(points("top-k cap 8"), {}, "top-k cap 8"))
    assert "Runs with" not in subtitle_of(draw_acceptance_map(points(), {}, ONLY))
    with pytest.raises(ValueError, match='no slice "top-k cap 2" in this sweep; it has "every run"'):
        draw_speedup_map(points(), {}, "top-k cap 2")
    with pytest.raises(ValueError, match="only autoregressive rounds"):
        draw_acceptance_map(points().query("strategy == 'autoregressive'"), {}, ONLY)


def test_one_temperature_and_one_budget_make_a_map_of_one_square() -> None:
    one = points().query("temperature == 0 and label in ('autoregressive', 'tree 4')")
    figure = draw_acceptance_map(one, {}, ONLY)
    assert np.array(figure.data[0].z).tolist() == [[4.0]]
    assert title_of(figure) == "Most tokens a round: 4.00 at T = 0 (tree 4)"


def budgets() -> pd.DataFrame:
    rows = [
        # temperature, label, speed-up, ratio, best, tied
        (0.0, "tree 4", 2.0, 1.0, True, True),
        (0.0, "tree 8", 1.9, 0.95, False, True),
        (0.0, "tree auto", 1.0, 0.5, False, False),
        (1.0, "tree 4", 1.0, 0.5, False, False),
        (1.0, "tree 8", 2.0, 1.0, True, True),
        (1.0, "tree auto", 2.0, 1.0, False, True),
    ]
    return pd.DataFrame(
        [
            {"temperature": t, "label": label, "budget": {"tree 4": 4, "tree 8": 8}.get(label, 64)}
            | {"speedup": speedup, "speedup_lo": speedup - 0.1, "speedup_hi": speedup + 0.2}
            | {"ratio": ratio, "ratio_lo": ratio - 0.1, "ratio_hi": ratio + 0.1}
            | {"best": best, "tied": tied, "prompts": 4}
            for t, label, speedup, ratio, best, tied in rows
        ]
    )


def test_budgets_mark_the_best_and_its_ties_for_each_temperature() -> None:
    lines, marks = draw_budgets(budgets(), ONLY).data[::2], draw_budgets(budgets(), ONLY).data[1::2]
    assert [line.name for line in lines] == ["T = 0", "T = 1"]
    assert [list(line.y) for line in lines] == [[2.0, 1.9], [1.0, 2.0]]  # auto is no further step of a budget
    assert [list(mark.y) for mark in marks] == [[2.0, 1.9, 1.0], [1.0, 2.0, 2.0]]
    assert list(marks[0].marker.symbol) == ["star", "circle", "circle-open"]
    assert list(marks[1].marker.symbol) == ["circle-open", "star", "circle"]
    assert list(marks[0].error_y.array) == pytest.approx([0.2] * 3)
    assert marks[1].marker.color == temperature_colour(1.0)
    assert [round(x) for x in marks[0].x] == [0, 1, 2]


def test_the_title_says_where_there_is_no_clear_winner() -> None:
    figure = draw_budgets(budgets(), ONLY)
    assert title_of(figure) == "Best budget: no clear winner at T = 0 (4, 8), 8 at T = 1"
    assert (
        "Auto: 0.50 of the best fixed speed at T = 0 (0.40 to 0.60, clearly slower); "
        "1.00 of the best fixed speed at T = 1 (0.90 to 1.10, no clear difference)."
    ) in subtitle_of(figure)
    assert "Auto" not in subtitle_of(draw_budgets(budgets().query("label != 'tree auto'"), ONLY))


def test_a_single_temperature_stands_on_the_ticks() -> None:
    figure = draw_budgets(budgets().query("temperature == 0 and label == 'tree 4'"), ONLY)
    assert list(figure.data[1].x) == [0]
    assert title_of(figure) == "Best budget: 4 at T = 0 (no other)"


def test_depths_are_lines_over_temperature() -> None:
    shares = {
        (0.0, 1): (0.8, 0.7, 0.9),
        (0.0, 2): (0.5, 0.4, 0.6),
        (1.0, 1): (0.6, 0.5, 0.65),
        (1.0, 2): (0.2, 0.1, 0.3),
    }
    frame = pd.DataFrame(
        [
            {"temperature": t, "depth": d, "share": v, "share_lo": lo, "share_hi": hi, "rounds": 9, "prompts": 4}
            for (t, d), (v, lo, hi) in shares.items()
        ]
    )
    figure = draw_depths(frame, ONLY, "tree 4")
    assert [(line.name, list(line.x), list(line.y)) for line in figure.data] == [
        ("d = 1", [0, 1], [0.8, 0.6]),
        ("d = 2", [0, 1], [0.5, 0.2]),
    ]
    assert list(figure.data[0].error_y.arrayminus) == pytest.approx([0.1, 0.1])
    assert title_of(figure) == "Tree 4: a draft accepted in 80% at T = 0, 60% at T = 1"
    overlapping = frame.assign(share_hi=lambda f: f["share_hi"] + 0.1)
    assert title_of(draw_depths(overlapping, ONLY, "tree 4")).endswith("60% at T = 1 (no clear difference)")
    assert title_of(draw_depths(frame.query("temperature == 0"), ONLY, "tree 4")).endswith("80% at T = 0")


def test_cost_has_marks_of_each_temperature_its_front_and_lines_of_equal_speed() -> None:
    figure = draw_cost(points(), ONLY)
    marks = {trace.name: trace for trace in figure.data if trace.name}
    assert list(marks) == ["T = 0", "T = 1"]
    cold = dict(zip((row[0] for row in marks["T = 0"].customdata), marks["T = 0"].marker.symbol, strict=True))
    assert cold == {
        "autoregressive": "square", "chain": "diamond-open", "tree 4": "circle", "tree auto": "circle-open",
    }  # fmt: skip
    iso = [trace for trace in figure.data if trace.mode == "lines" and trace.legendgroup is None]
    assert len(iso) >= 3
    for line, label in zip(iso, figure.layout.annotations, strict=True):
        assert 1e3 * line.y[1] / line.x[1] == pytest.approx(float(label.text.removesuffix("/s")))
    assert title_of(figure) == "Highest mean tokens/s: 200.0 by tree 4 at T = 0, 110.0 by tree auto at T = 1"


def test_a_cost_that_varies_much_keeps_its_axes_above_zero() -> None:
    wide = points().assign(round_ms_hi=4000.0)
    figure = draw_cost(wide, ONLY)
    assert figure.layout.xaxis.range[0] == 5
    assert figure.layout.yaxis.range[0] > 0


@pytest.mark.parametrize("far", [1, 50])
def test_lines_of_equal_speed_are_few_and_lie_in_the_plot(far: float) -> None:
    figure = draw_cost(points().assign(round_ms_hi=30.0 * far), ONLY)
    speeds = [float(label.text.removesuffix("/s")) for label in figure.layout.annotations]
    assert 3 <= len(speeds) <= 12
    (left, right), (bottom, top) = figure.layout.xaxis.range, figure.layout.yaxis.range
    assert all(1e3 * bottom / right < speed < 1e3 * top / left for speed in speeds)


def entropy_frame() -> pd.DataFrame:
    rows = [(0.0, 0.0, 0.8), *((t, e, v) for (t, (e, v)) in product((0.5, 1.0, ALL), ((0.1, 0.7), (2.0, 0.3))))]
    return pd.DataFrame(
        [
            {"temperature": t, "entropy": e, "rounds": 9, "prompts": 4}
            | {f"offered{end}": v + shift for end, shift in (("", 0), ("_lo", -0.1), ("_hi", 0.1))}
            | {f"accepted{end}": 3 * v + shift for end, shift in (("", 0), ("_lo", -0.1), ("_hi", 0.1))}
            for t, e, v in rows
        ]
    )


def test_entropy_has_both_measures_for_each_temperature_and_for_all_sampled() -> None:
    none = Estimate(-0.3, -0.4, -0.2)
    beyond = BeyondEntropy(0.5, 1.0, none, Estimate(-0.3, -0.4, -0.2), Estimate(0.0, -0.05, 0.05), prompts=4)
    figure = draw_entropy(entropy_frame(), beyond, ONLY, "tree 4")
    assert [(trace.name, trace.yaxis) for trace in figure.data] == [
        (name, axis) for axis in ("y", "y2") for name in ("all sampled", "T = 0", "T = 0.5", "T = 1")
    ]
    assert list(figure.data[0].y) == [0.7, 0.3]
    assert list(figure.data[4].y) == pytest.approx([2.1, 0.9])
    assert title_of(figure) == "Once entropy is known, temperature makes no clear difference to acceptance"


def test_entropy_without_two_sampled_temperatures_says_so() -> None:
    figure = draw_entropy(entropy_frame().query("temperature != 0.5"), None, ONLY, "tree 4")
    assert title_of(figure) == "Acceptance falls with entropy"
    assert "Fewer than two sampled temperatures" in subtitle_of(figure)
    flat = entropy_frame().assign(offered_lo=0.0)
    assert title_of(draw_entropy(flat, None, ONLY, "tree 4")) == "No clear fall of acceptance with entropy"


def split(*, clear: bool = True) -> pd.DataFrame:
    parts = {"acceptance": math.log(0.5), "sample": math.log(0.8), "draft": math.log(1.25)}
    rows = []
    for label in ("tree 4", "autoregressive"):
        row = {"label": label, "strategy": label.split()[0], "cold": 0.0, "hot": 1.0, "prompts": 4, "clear": clear}
        for end in ("", "_lo", "_hi"):
            row |= {f"part_{part}{end}": parts.get(part, 0.0) for part in PARTS}
        row |= {"speed": 0.5, "speed_lo": 0.4, "speed_hi": 0.6}
        row |= {f"share_acceptance{end}": share for end, share in (("", 0.9), ("_lo", 0.8), ("_hi", 1.1))}
        rows.append(row | {"share_time": 0.1})
    return pd.DataFrame(rows)


def test_parts_of_a_slow_down_are_stacked_to_the_whole() -> None:
    figure = draw_slowdown(split(), ONLY, "tree 4")
    bars = {trace.name: trace for trace in figure.data if trace.type == "bar"}
    assert list(bars) == ["acceptance", "draft", "build", "compile", "verify", "sample", "commit"]
    assert figure.layout.barmode == "relative"
    assert list(bars["acceptance"].y) == ["autoregressive", "tree 4"]
    whole = next(trace for trace in figure.data if trace.type == "scatter")
    for place in (0, 1):
        assert (
            sum(bar.x[place] for bar in bars.values()) == pytest.approx(whole.x[place]) == pytest.approx(math.log(0.5))
        )
    assert whole.error_x.array[0] == pytest.approx(math.log(0.6 / 0.5))
    assert dict(zip(figure.layout.xaxis.ticktext, figure.layout.xaxis.tickvals, strict=True))["0.5×"] == math.log(0.5)


def test_the_slow_downs_title_is_the_share_of_acceptance_or_that_none_is_clear() -> None:
    assert title_of(draw_slowdown(split(), ONLY, "tree 4")) == (
        "Tree 4, T = 0 to T = 1: 0.50× the speed, acceptance is 90% (80% to 110%) of the loss"
    )
    assert title_of(draw_slowdown(split(clear=False), ONLY, "tree 4")) == (
        "Tree 4, T = 0 to T = 1: 0.50× the speed, no clear change"
    )
    with pytest.raises(ValueError, match='"tree 8" has no two temperatures in this slice; tree 4, autoregressive have'):
        draw_slowdown(split(), ONLY, "tree 8")


def test_one_prompt_is_said_to_have_no_interval() -> None:
    assert "one prompt, so no interval" in subtitle_of(draw_cost(points().assign(prompts=1), ONLY))
    assert title_of(draw_speedup_map(points().assign(prompts=1), {}, ONLY)).startswith("Fastest: 2.00× by tree 4")
    mixed = points().assign(prompts=[1, 2, 3, 4, 5, 6, 7])
    assert "95% interval over 1 to 7 prompts" in subtitle_of(draw_cost(mixed, ONLY))
