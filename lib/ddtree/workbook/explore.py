"""Figures that answer to controls when a front-end is attached, and stand still at the given values otherwise."""

import html
import traceback
from collections.abc import Callable
from typing import Any

import ipywidgets
import plotly.graph_objects as go
import plotly.io as pio
from IPython.display import display

from ddtree.workbook.explore_still import HIDING, LIVE_CLASS, StillTwin, as_data
from ddtree.workbook.explore_switch import has_frontend

# A kernel's pictures are data: JupyterLab and the report draw them, and no notebook stores plotly.js.
pio.renderers.default = "plotly_mimetype"

WRAPPING = {"flex_flow": "row wrap"}  # a narrow page shows every control whole


def explore(draw: Callable[..., go.Figure], **controls: ipywidgets.ValueWidget) -> None:
    """Show `draw(**values)`, where the values are those of the `controls` (ipywidgets) of the same names.

    With a front-end the controls are shown and redraw the figure; without one the figure stands alone. What is saved
    is the figure last drawn, either way.
    An error of the first drawing is raised; a later one is shown under the controls until the next success.
    """
    figure = draw(**_values(controls))
    if not has_frontend():
        display(figure)
        return
    twin = StillTwin()
    display(live_view(draw, figure, controls, drawn=twin.follow))
    twin.show(figure)


def live_view(
    draw: Callable[..., go.Figure],
    figure: go.Figure,
    controls: dict[str, ipywidgets.ValueWidget],
    *,
    drawn: Callable[[go.Figure], None],
) -> ipywidgets.VBox:
    """Controls, a place for errors, and `figure` in an output that follows the controls.

    `drawn` is called with every figure after the first.
    """
    shown = ipywidgets.Output()
    put(shown, figure)
    problem = ipywidgets.HTML()

    def redraw(_change: Any) -> None:
        try:
            new = draw(**_values(controls))
            put(shown, new)
            drawn(new)
        except Exception:  # a widget's callback has no caller to raise to
            problem.value = f"<pre style='color: #b3261e'>{html.escape(traceback.format_exc())}</pre>"
        else:
            problem.value = ""

    for control in controls.values():
        control.observe(redraw, "value")
    row = ipywidgets.HBox(list(controls.values()), layout=WRAPPING)
    view = ipywidgets.VBox([row, problem, shown, ipywidgets.HTML(HIDING)])
    view.add_class(LIVE_CLASS)
    return view


def put(shown: ipywidgets.Output, figure: go.Figure) -> None:
    """Replace what is shown. The room stays while JupyterLab draws, so that the page below does not jump."""
    shown.layout.min_height = f"{figure.layout.height or 360}px"
    shown.outputs = ({"output_type": "display_data", "data": as_data(figure), "metadata": {}},)


def _values(controls: dict[str, ipywidgets.ValueWidget]) -> dict[str, Any]:
    return {name: control.value for name, control in controls.items()}
