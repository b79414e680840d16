"""The same call gives sliders with a front-end and a still figure without one."""

from typing import Any

import ipywidgets
import plotly.graph_objects as go
import plotly.io as pio
import pytest
from ddtree.workbook import explore
from ddtree.workbook.explore import has_frontend
from wording import names

PLOTLY = "application/vnd.plotly.v1+json"


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
    """What the cell puts out, in order."""
    things: list[Any] = []
    monkeypatch.setattr(explore, "display", things.append)
    return things


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, shown: list[Any]) -> dict[str, Any]:
    """The outputs that can be replaced: data by display id."""
    data: dict[str, Any] = {}

    def display(bundle: Any, *, raw: bool = False, display_id: str = "") -> None:
        if not display_id:
            shown.append(bundle)
            return
        assert raw
        shown.append(display_id)
        data[display_id] = bundle

    def update_display(bundle: Any, *, raw: bool, display_id: str) -> None:
        assert raw
        assert display_id in data
        data[display_id] = bundle

    monkeypatch.setattr(explore, "display", display)
    monkeypatch.setattr(explore, "update_display", update_display)
    return data


def live_figure(view: ipywidgets.VBox) -> dict[str, Any]:
    (output,) = view.children[2].outputs
    return output["data"][PLOTLY]


def title(figure: dict[str, Any]) -> str:
    return figure["layout"]["title"]["text"]


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
    with pytest.raises(ValueError, match=names("DDTREE_LIVE yes 0 1")):
        has_frontend()


def test_still_figure_has_the_given_values(monkeypatch: pytest.MonkeyPatch, shown: list[Any]) -> None:
    monkeypatch.setenv("DDTREE_LIVE", "0")
    explore.explore(draw, **controls())
    (figure,) = shown
    assert type(figure) is go.Figure
    assert figure.layout.title.text == "height 2.0"


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch, shown: list[Any], kept: dict[str, Any]) -> dict[str, ipywidgets.ValueWidget]:
    """The sliders of a live view that is shown."""
    monkeypatch.setenv("DDTREE_LIVE", "1")
    sliders = controls()
    explore.explore(draw, **sliders)
    return sliders


def test_live_figure_follows_the_controls(live: dict[str, ipywidgets.ValueWidget], shown: list[Any]) -> None:
    view = shown[0]
    assert title(live_figure(view)) == "height 2.0"
    live["height"].value = 3.0
    live["count"].value = 3
    figure = live_figure(view)
    assert title(figure) == "height 3.0"
    assert [trace["y"] for trace in figure["data"]] == [[3.0]] * 3
    assert view.children[1].value == ""


def test_notebook_keeps_the_figure_last_drawn(
    live: dict[str, ipywidgets.ValueWidget], shown: list[Any], kept: dict[str, Any]
) -> None:
    view, twin = shown
    assert title(kept[twin][PLOTLY]) == "height 2.0"
    live["height"].value = 3.0
    assert kept[twin][PLOTLY] == live_figure(view)
    live["height"].value = 9.0  # cannot be drawn
    assert title(kept[twin][PLOTLY]) == "height 3.0"


def test_live_view_hides_the_output_after_it(live: dict[str, ipywidgets.ValueWidget], shown: list[Any]) -> None:
    view = shown[0]
    (name,) = view._dom_classes
    assert f":has(.{name}) + " in view.children[-1].value


def test_page_does_not_jump_while_a_figure_is_drawn() -> None:
    output = ipywidgets.Output()
    explore.put(output, go.Figure(layout={"height": 512}))
    assert output.layout.min_height == "512px"


def test_drawing_error_is_shown_until_the_next_success(
    live: dict[str, ipywidgets.ValueWidget], shown: list[Any]
) -> None:
    view = shown[0]
    problem = view.children[1]
    live["height"].value = 9.0
    assert "ValueError: too &lt;high&gt;" in problem.value
    assert title(live_figure(view)) == "height 2.0"
    live["height"].value = 4.0
    assert problem.value == ""
    assert title(live_figure(view)) == "height 4.0"


def test_first_drawing_error_is_raised() -> None:
    with pytest.raises(ValueError, match="too <high>"):
        explore.explore(draw, height=ipywidgets.FloatText(value=7.0), count=ipywidgets.IntText(value=1))


def test_figures_are_stored_as_data() -> None:
    assert pio.renderers.default == "plotly_mimetype"
