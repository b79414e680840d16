"""The same call gives sliders with a front-end and a still figure without one."""

from typing import Any

import ipywidgets
import plotly.graph_objects as go
import plotly.io as pio
import pytest
from ddtree.workbook import explore as module
from ddtree.workbook.explore_switch import has_frontend


def draw(height: float, count: int) -> go.Figure:
    if height > 5:
        raise ValueError("too <high>")
    return go.Figure([go.Bar(y=[height]) for _ in range(count)], layout_title_text=f"height {height}")


def controls() -> dict[str, ipywidgets.ValueWidget]:
    return {
        "height": ipywidgets.FloatSlider(value=2.0, min=0, max=10),
        "count": ipywidgets.IntSlider(value=1, min=1, max=3),
    }


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    things: list[Any] = []
    monkeypatch.setattr(module, "display", things.append)
    return things


@pytest.mark.parametrize(
    ("override", "session", "live"),
    [(None, None, False), (None, "nb", True), ("0", "nb", False), ("1", None, True)],
)
def test_environment_decides(
    monkeypatch: pytest.MonkeyPatch, override: str | None, session: str | None, live: bool
) -> None:
    for name, value in (("DDTREE_LIVE", override), ("JPY_SESSION_NAME", session)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert has_frontend() is live


def test_other_override_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDTREE_LIVE", "yes")
    with pytest.raises(ValueError, match="DDTREE_LIVE is 'yes'; 0 or 1"):
        has_frontend()


def test_still_figure_has_the_given_values(monkeypatch: pytest.MonkeyPatch, shown: list[Any]) -> None:
    monkeypatch.setenv("DDTREE_LIVE", "0")
    module.explore(draw, **controls())
    (figure,) = shown
    assert type(figure) is go.Figure
    assert figure.layout.title.text == "height 2.0"


def test_live_figure_follows_the_controls(monkeypatch: pytest.MonkeyPatch, shown: list[Any]) -> None:
    monkeypatch.setenv("DDTREE_LIVE", "1")
    sliders = controls()
    module.explore(draw, **sliders)
    _, problem, live = shown[0].children
    sliders["height"].value = 3.0
    sliders["count"].value = 3
    assert live.layout.title.text == "height 3.0"
    assert [tuple(trace.y) for trace in live.data] == [(3.0,)] * 3
    assert problem.value == ""


def test_drawing_error_is_shown_until_the_next_success(monkeypatch: pytest.MonkeyPatch, shown: list[Any]) -> None:
    monkeypatch.setenv("DDTREE_LIVE", "1")
    sliders = controls()
    module.explore(draw, **sliders)
    _, problem, live = shown[0].children
    sliders["height"].value = 9.0
    assert "ValueError: too &lt;high&gt;" in problem.value
    assert live.layout.title.text == "height 2.0"
    sliders["height"].value = 4.0
    assert problem.value == ""
    assert live.layout.title.text == "height 4.0"


def test_first_drawing_error_is_raised() -> None:
    with pytest.raises(ValueError, match="too <high>"):
        module.explore(draw, height=ipywidgets.FloatText(value=7.0), count=ipywidgets.IntText(value=1))


def test_figures_are_stored_as_data() -> None:
    assert pio.renderers.default == "plotly_mimetype"
