"""Figures that answer to controls when a front-end is attached, and stand still at the given values otherwise."""

import html
import traceback
from collections.abc import Callable
from typing import Any

import ipywidgets
import plotly.graph_objects as go
import plotly.io as pio
from IPython.display import display

from ddtree.workbook.explore_switch import has_frontend

# A kernel's pictures are data: JupyterLab and the report draw them, and no notebook stores plotly.js.
pio.renderers.default = "plotly_mimetype"


def explore(draw: Callable[..., go.Figure], **controls: ipywidgets.ValueWidget) -> None:
    """Show `draw(**values)`, where the values are those of the `controls` (ipywidgets) of the same names.

    With a front-end the controls are shown and redraw the figure; without one the figure stands alone.
    An error of the first drawing is raised; a later one is shown under the controls until the next success.
    """
    figure = draw(**_values(controls))
    display(live_view(draw, figure, controls) if has_frontend() else figure)


def live_view(
    draw: Callable[..., go.Figure], figure: go.Figure, controls: dict[str, ipywidgets.ValueWidget]
) -> ipywidgets.VBox:
    """Controls, a place for errors, and `figure` as a widget that follows the controls."""
    live = go.FigureWidget(figure)
    problem = ipywidgets.HTML()

    def redraw(_change: Any) -> None:
        try:
            new = draw(**_values(controls))
            with live.batch_update():
                live.update(
                    data=[trace.to_plotly_json() for trace in new.data],
                    layout=new.layout.to_plotly_json(),
                    overwrite=True,
                )
        except Exception:  # a widget's callback has no caller to raise to
            problem.value = f"<pre style='color: #b3261e'>{html.escape(traceback.format_exc())}</pre>"
        else:
            problem.value = ""

    for control in controls.values():
        control.observe(redraw, "value")
    return ipywidgets.VBox([ipywidgets.HBox(list(controls.values())), problem, live])


def _values(controls: dict[str, ipywidgets.ValueWidget]) -> dict[str, Any]:
    return {name: control.value for name, control in controls.items()}
