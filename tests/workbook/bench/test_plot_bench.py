"""Figures of speed: every number where it belongs, floors drawn in, titles that say what the numbers do."""

import pandas as pd
import plotly.graph_objects as go
import pytest
from ddtree.decode import STAGES
from ddtree.workbook.bench.plots import (
    draw_attention,
    draw_builders,
    draw_chain,
    draw_rounds,
    draw_stages,
    draw_verify,
    microseconds,
    times,
)
from wording import tells

PLACES = [(1000, 1, 16), (1000, 1, 64), (2000, 8, 16), (2000, 8, 64)]
US = {"top-k": 10.0, "build": 20.0, "compile": 5.0, "mask": 6.0, "sample": 40.0, "plan": 3.0, "heap": 100.0}


def title_of(figure: go.Figure) -> str:
    return figure.layout.title.text.replace(" <br>", " ")


def around(name: str, value: float) -> dict[str, float]:
    return {name: value, f"{name}_lo": 0.9 * value, f"{name}_hi": 1.2 * value}


def stages(graphs: bool = False) -> pd.DataFrame:
    rows = []
    for vocab, batch, budget in PLACES:
        for stage, us in US.items():
            place = {"stage": stage, "vocab": vocab, "batch": batch, "budget": budget, "floor_us": 1.0}
            rows.append(place | {"how": "launches"} | around("us", us * batch * budget / 16))
            if graphs and stage == "build":
                rows.append(place | {"how": "graph"} | around("us", us / 2))
    return pd.DataFrame(rows)


def traces(figure: go.Figure, name: str) -> list[go.Scatter]:
    return [trace for trace in figure.data if trace.name == name]


def test_stages_stand_at_their_budgets_with_intervals_and_floors() -> None:
    figure = draw_stages(stages())
    small, large = traces(figure, "build_tree")
    assert list(small.x) == [0, 1]
    assert list(small.y) == [20.0, 80.0]
    assert list(large.y) == [160.0, 640.0]
    assert list(small.error_y.array) == pytest.approx([4.0, 16.0])
    assert list(small.error_y.arrayminus) == pytest.approx([2.0, 8.0])
    floors = traces(figure, "floor of build_tree")
    assert [list(floor.y) for floor in floors] == [[1.0, 1.0]] * 2
    assert floors[0].line.dash == "dot"
    assert figure.layout.xaxis.ticktext == ("16", "64")
    assert tells(title_of(figure), "V 2,000 batch 8 budget 64 sample 1.28 ms")
    assert "graph" not in figure.layout.title.subtitle.text


def test_graph_replays_are_open_marks_beside_the_launches() -> None:
    figure = draw_stages(stages(graphs=True))
    replayed = [trace for trace in traces(figure, "build_tree") if trace.mode == "markers"]
    assert [list(trace.y) for trace in replayed] == [[10.0, 10.0]] * 2
    assert all(trace.marker.symbol == "circle-open" for trace in replayed)
    assert "CUDA graph" in figure.layout.title.subtitle.text


def test_builders_say_the_range_of_ratios() -> None:
    rows = [
        {"builder": "build_tree", "vocab": v, "batch": b, "budget": n, "heap_us": 9.0} | around("ratio", ratio)
        for (v, b, n), ratio in zip(PLACES, (0.5, 2.0, 11.0, 25.0), strict=True)
    ]
    figure = draw_builders(pd.DataFrame(rows))
    (trace,) = figure.data
    assert list(trace.x) == [0.5, 2.0, 11.0, 25.0]
    assert tells(trace.y[0], "1,000 1 16")
    assert tells(title_of(figure), "0.5 25×")
    assert tells(figure.layout.title.subtitle.text, "V 1,000 batch 1 budget 16")


def verify(*pipelines: str) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"pipeline": name, "filters": filters, "vocab": v, "batch": b, "budget": n, "floor_us": 2.0}
            | around("us", 10.0 * (k + 1))
            | around("over_ours", float(k + 1))
            for filters in ("top-k 40", "no filter")
            for v, b, n in PLACES
            for k, name in enumerate(pipelines)
        ]
    )


def test_verify_names_each_peers_ratio_at_the_largest_size() -> None:
    figure = draw_verify(verify("ours: fused", "stock pipeline", "SGLang DFlash"))
    assert tells(title_of(figure), "V 2,000 batch 8 budget 64 stock pipeline 2× SGLang DFlash 3×")
    assert [list(trace.x) for trace in traces(figure, "stock pipeline")] == [[20.0] * 4] * 2
    assert [list(trace.x) for trace in traces(figure, "floor")] == [[2.0] * 4] * 2


def test_verify_without_a_peer_says_what_ours_takes() -> None:
    figure = draw_verify(verify("ours: reference"))
    assert tells(title_of(figure), "V 2,000 batch 8 budget 64 reference 10 µs")


def attention(*kernels: str) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"attention": name, "model": model, "prefix": prefix, "batch": 4, "budget": 16, "floor_us": 1.5}
            | around("us", 10.0 * (k + 1))
            | around("over_ours", 1.0 + k * prefix / 1000)
            for model in ("small", "large")
            for prefix in (500, 2000)
            for k, name in enumerate(kernels)
        ]
    )


def test_attention_says_the_range_of_ratios_and_draws_each_model() -> None:
    figure = draw_attention(attention("ours: tree attention", "SGLang extend"))
    assert tells(title_of(figure), "1.5 3×")
    assert [list(trace.x) for trace in traces(figure, "SGLang extend")] == [[20.0, 20.0]] * 2
    assert [list(trace.x) for trace in traces(figure, "floor")] == [[1.5, 1.5]] * 2
    assert tells(traces(figure, "SGLang extend")[0].y[1], "2,000 4 16")
    assert [note.text.split()[-1] for note in figure.layout.annotations[:2]] == ["small", "large"]
    alone = draw_attention(attention("ours: tree attention"))
    assert tells(title_of(alone), "large 2,000 4 16 10 µs")


def test_rounds_are_stacked_and_their_overhead_written_beside() -> None:
    ms = dict.fromkeys(STAGES, 1.0) | {"verify": 16.0}
    parts = ms | {"overhead": 4.0, "round": 21.0}
    rows = [
        {"model": "m", "batch": batch, "budget": 16, "stage": stage}
        | around("us", 1e3 * value)
        | around("share", value / 21)
        for batch in (1, 16)
        for stage, value in parts.items()
    ]
    figure = draw_rounds(pd.DataFrame(rows))
    bars = [trace for trace in figure.data if isinstance(trace, go.Bar)]
    assert {bar.name for bar in bars} == set(STAGES)
    assert list(next(bar for bar in bars if bar.name == "verify").x) == [16.0, 16.0]
    (text,) = [trace for trace in figure.data if isinstance(trace, go.Scatter)]
    assert list(text.x) == [21.0, 21.0]
    assert [label.strip() for label in text.text] == ["19.0%"] * 2
    assert tells(title_of(figure), "19.0%")


def chain(over_peer: float | None) -> pd.DataFrame:
    rows = []
    for temperature in (0.0, 1.0):
        for method, speed in (("autoregressive", 20.0), ("chain", 30.0), ("tree", 40.0)):
            rated = around("over_peer", over_peer) if over_peer else dict.fromkeys(["over_peer"])
            row = {"model": "m", "temperature": temperature, "method": method, "tokens": 64}
            rows.append(row | around("tokens_per_s", speed) | rated)
    return pd.DataFrame(rows)


def test_whole_calls_side_by_side_at_each_temperature() -> None:
    figure = draw_chain(chain(1.5))
    trees = next(trace for trace in figure.data if trace.name == "tree")
    assert list(trees.x) == ["T = 0", "T = 1"]
    assert list(trees.y) == [40.0, 40.0]
    assert tells(title_of(figure), "dflash_generate 1.5 1.5×")
    assert not tells(title_of(draw_chain(chain(None))), "dflash_generate")


@pytest.mark.parametrize(
    ("draw", "frame"),
    [
        (draw_stages, stages()),
        (draw_verify, verify("ours: fused")),
        (draw_attention, attention("SGLang extend")),
        (draw_chain, chain(1.0)),
    ],
)
def test_a_missing_column_is_named(draw: object, frame: pd.DataFrame) -> None:
    assert callable(draw)
    with pytest.raises(ValueError, match=str(frame.columns[0])):
        draw(frame.drop(columns=frame.columns[0]))


def test_numbers_keep_few_digits() -> None:
    assert [microseconds(us) for us in (0.4, 731.2, 5234.0)] == ["0.4 µs", "731 µs", "5.23 ms"]
    assert [times(value) for value in (0.345, 9.96, 10.4, 123.0)] == ["0.34", "10", "10", "123"]
