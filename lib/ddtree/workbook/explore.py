"""Figures with interactive controls where a front-end is attached, and static at the given values elsewhere."""

import html
import os
import traceback
import uuid
from collections.abc import Callable
from typing import Any

import ipywidgets
import plotly.graph_objects as go
import plotly.io as pio
from IPython.display import display, update_display

LIVE_VARIABLE = "DDTREE_LIVE"


def has_frontend() -> bool:
    """Whether someone can move a slider.

    Jupyter's server names its session in the kernel's environment; papermill and nbclient do not.
    DDTREE_LIVE=0 or 1 decides first, because a run started from inside a notebook inherits that name.
    Raises ValueError for another value.
    """
    override = os.environ.get(LIVE_VARIABLE)
    if override is None:
        return "JPY_SESSION_NAME" in os.environ
    if override not in ("0", "1"):
        raise ValueError(f"The environment variable {LIVE_VARIABLE} is {override!r}; 0 or 1 is needed.")
    return override == "1"


LIVE_CLASS = "ddtree-live"
# A saved widget is nothing without its kernel, and takes this rule with it; then the twin is seen.
HIDING = f"<style>.jp-OutputArea-child:has(.{LIVE_CLASS}) + .jp-OutputArea-child {{ display: none }}</style>"


class StillTwin:
    """One output with the figure as data, to be shown next after the live view."""

    def __init__(self) -> None:
        self._id = uuid.uuid4().hex

    def show(self, figure: go.Figure) -> None:
        display(as_data(figure), raw=True, display_id=self._id)

    def follow(self, figure: go.Figure) -> None:
        """Replace what the notebook keeps."""
        update_display(as_data(figure), raw=True, display_id=self._id)


def as_data(figure: go.Figure) -> dict[str, object]:
    return dict(pio.renderers["plotly_mimetype"].to_mimebundle(figure.to_dict()))


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
