"""Figures of serving: every number where it belongs, emulated costs named, titles that say what the numbers do."""

from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
import pytest
from ddtree.workbook.bench_serving.plots import (
    draw_served_acceptance,
    draw_served_histogram,
    draw_served_rounds,
    draw_speedup,
    draw_throughput,
    interval_over,
    span,
    styles,
)
from ddtree.workbook.bench_serving.view import ServingResults as Serving
from ddtree.workbook.params import ServingParams
from ddtree.workbook.theme import jitter
from serving_record import FIRST_S, TOKENS, made_up, round_s, write_made_up
from wording import names, tells

PARAMS = ServingParams.from_mapping({"extra_layers": [0, 100], "budgets": [16, 32], "bootstrap": 100})


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Serving:
    return Serving.recorded(write_made_up(tmp_path_factory.mktemp("made"), PARAMS), PARAMS)


@pytest.fixture(scope="module")
def own_cost(serving: Serving) -> Serving:
    """The same run without its emulated cost."""
    metrics = {part: [row for row in rows if not row.get("extra_layers")] for part, rows in made_up(PARAMS).items()}
    return Serving.from_metrics(metrics, PARAMS.to_plain(), PARAMS, "made up")


def title_of(figure: go.Figure) -> str:
    return figure.layout.title.text.replace(" <br>", " ")


def subtitle_of(figure: go.Figure) -> str:
    return figure.layout.title.subtitle.text.replace(" <br>", " ")


def traces(figure: go.Figure, name: str) -> list[go.Scatter]:
    return [trace for trace in figure.data if trace.name == name]


def headings(figure: go.Figure) -> list[str]:
    return [note.text for note in figure.layout.annotations]


def test_throughput_stands_in_a_panel_for_each_cost(serving: Serving) -> None:
    figure = draw_throughput(serving.rates, serving.steps, 1)
    own_heading, emulated_heading = headings(figure)
    assert tells(own_heading, "1.0 ms")
    assert tells(emulated_heading, "emulated 5.0 ms +100")
    own, emulated = traces(figure, "T = 0")
    assert list(own.text) == ["plain", "DFLASH", "DDTREE 16", "DDTREE 32"]
    assert own.x[0] == pytest.approx(TOKENS / (FIRST_S + 120 * round_s("plain", 0)))
    assert emulated.x[3] == pytest.approx(TOKENS / (FIRST_S + 24 * round_s("ddtree-32", 100)))
    assert list(own.y) == pytest.approx([number - 0.25 for number in range(4)])
    assert list(own.error_x.array) == pytest.approx([0] * 4)
    assert list(figure.layout.yaxis.ticktext) == list(own.text)


def test_throughput_says_who_is_fastest_and_where_the_cost_is_emulated(serving: Serving, own_cost: Serving) -> None:
    alone = draw_throughput(serving.rates, serving.steps, 1)
    assert tells(title_of(alone), "batch 1 DDTREE 32 1,214/s T = 0 plain 864/s T = 1")
    assert tells(subtitle_of(alone), "emulated DDTREE 32")
    assert tells(subtitle_of(alone), "95% 8 prompts")
    assert tells(subtitle_of(draw_throughput(serving.rates, serving.steps, 8)), "95% 3 repeats")
    assert tells(subtitle_of(alone), "+N N identity layers")
    assert "mulated" not in str(draw_throughput(own_cost.rates, own_cost.steps, 1).to_dict()["layout"])
    deep = serving.rates[serving.rates["extra_layers"] > 0]
    assert tells(title_of(draw_throughput(deep, serving.steps, 1)), "emulated +100")


def test_speedup_stands_at_the_cost_of_a_plain_step(serving: Serving) -> None:
    figure = draw_speedup(serving.rates, serving.steps, 1)
    assert headings(figure) == ["T = 0", "T = 0.6", "T = 1"]
    trees = traces(figure, "DDTREE 16")
    assert list(trees[0].x) == pytest.approx([1.0, 5.0]), "the middle of three servers is where the cost is"
    plain, own = (FIRST_S + n * round_s(name, 100) for name, n in (("plain", 120), ("ddtree-16", 30)))
    assert trees[0].y[1] == pytest.approx(plain / own)
    assert list(figure.layout.xaxis.ticktext) == ["1.0", "5.0<br>+100"]
    assert "emulated cost" in figure.layout.xaxis3.title.text
    assert not traces(figure, "plain")
    pairs = list(zip(trees, traces(figure, "DDTREE 32"), strict=True))
    best = [[max(few.y[place], many.y[place]) for few, many in pairs] for place in (0, 1)]
    spans = [f"{min(values):.2f} to {max(values):.2f}×" for values in best]
    assert tells(title_of(figure), f"DDTREE plain batch 1 {spans[0]} 1.0 ms {spans[1]} emulated 5.0 ms +100")


def test_speedup_at_one_cost_speaks_of_no_emulation(own_cost: Serving) -> None:
    figure = draw_speedup(own_cost.rates, own_cost.steps, 8)
    assert figure.layout.xaxis3.title.text == "ms of a plain step"
    assert "emulated" not in title_of(figure)


def test_acceptance_and_histogram_are_of_the_least_cost(serving: Serving) -> None:
    figure = draw_served_acceptance(serving.rounds)
    assert list(traces(figure, "DDTREE 32")[0].y) == pytest.approx([5.0, 3.75, 2.5])
    assert tells(title_of(figure), "DDTREE 32 5.00 DFLASH 3.00 T = 0 DDTREE 32 2.50 DFLASH 2.00 T = 1")
    assert "emulated" not in subtitle_of(figure)
    deep = draw_served_acceptance(serving.rounds[serving.rounds["extra_layers"] > 0])
    assert tells(subtitle_of(deep), "100 identity layers")


def test_histogram_shows_shares_of_rounds() -> None:
    row = {"extra_layers": 0, "temperature": 0.0}
    frame = pd.DataFrame(
        [
            row | {"name": "dflash", "method": "dflash", "budget": None, "counts": {"1": 3, "2": 1}},
            row | {"name": "ddtree-16", "method": "ddtree", "budget": 16.0, "counts": {"1": 1, "4": 3}},
        ]
    )
    figure = draw_served_histogram(frame)
    assert list(traces(figure, "DFLASH")[0].y) == [0.75, 0.25, 0, 0]
    assert list(traces(figure, "DDTREE 16")[0].y) == [0.25, 0, 0, 0.75]
    assert tells(title_of(figure), "DDTREE 16 25% T = 0")


def test_a_round_is_stacked_of_a_step_and_what_is_added(serving: Serving) -> None:
    figure = draw_served_rounds(serving.rounds, serving.steps)
    assert tells(headings(figure)[1], "emulated 5.0 ms +100")
    steps, added = traces(figure, "a plain step"), traces(figure, "what speculation adds")
    assert list(steps[1].x) == pytest.approx([5.0] * 9)
    assert list(added[1].x) == pytest.approx([2.0] * 3 + [2.16] * 3 + [2.32] * 3)
    assert list(added[0].y[:4]) == ["DFLASH, T = 0", "DFLASH, T = 0.6", "DFLASH, T = 1", "DDTREE 16, T = 0"]
    texts = [trace for trace in figure.data if isinstance(trace, go.Scatter)]
    assert texts[0].text[0].strip() == "3.0, 1.00×"
    assert tells(title_of(figure), "2.0 2.3 ms 1.0 ms 2.0 2.3 ms emulated 5.0 ms +100")


def test_a_round_below_a_plain_step_adds_nothing(own_cost: Serving) -> None:
    rounds = own_cost.rounds.assign(round_ms=0.5, added_ms=-0.5)
    figure = draw_served_rounds(rounds, own_cost.steps)
    assert set(traces(figure, "a plain step")[0].x) == {0.5}
    assert set(traces(figure, "what speculation adds")[0].x) == {0}


def test_every_server_has_its_own_style() -> None:
    names = ["plain", "dflash", *(f"ddtree-{budget}" for budget in (4, 8, 16, 32, 64))]
    frame = pd.DataFrame({"name": names, "method": [name.partition("-")[0] for name in names]}).assign(
        budget=[None, None, 4, 8, 16, 32, 64]
    )
    found = styles(frame)
    assert [style.name for style in found] == names
    assert len({style.colour for style in found}) == len({style.symbol for style in found}) == 7


def test_words_and_places() -> None:
    assert [jitter(number, 3, 0.5) for number in range(3)] == [-0.25, 0.0, 0.25]
    assert jitter(0, 1, 0.5) == 0.0
    assert not tells(interval_over(1, pd.Series([1, 1])), "95%")
    assert tells(interval_over(8, pd.Series([2, 3])), "95% 2 repeats")
    assert (span(1.201, 1.204), span(1.2, 1.3)) == ("1.20", "1.20 to 1.30")


def test_a_batch_that_was_not_measured_and_a_missing_column_are_named(serving: Serving, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=names("batch 5")):
        draw_throughput(serving.rates, serving.steps, 5)
    with pytest.raises(ValueError, match="over_plain"):
        draw_speedup(serving.rates.drop(columns="over_plain"), serving.steps, 1)
    with pytest.raises(ValueError, match="counts"):
        draw_served_histogram(serving.histograms.drop(columns="counts"))
    for draw in (draw_served_acceptance, lambda frame: draw_served_rounds(frame, serving.steps)):
        with pytest.raises(ValueError, match="acceptance"):
            draw(serving.rounds.drop(columns="acceptance"))
