"""Show figures with interactive controls where a front-end is attached, and static ones elsewhere.

The notebook always stores the figure last drawn as data, never as a script or only as a widget."""

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
LIVE_CLASS = "ddtree-live"
# Hides the static copy after a live view. Without its kernel a saved view vanishes with this rule, and the copy shows.
HIDING = f"<style>.jp-OutputArea-child:has(.{LIVE_CLASS}) + .jp-OutputArea-child {{ display: none }}</style>"
WRAPPING = {"flex_flow": "row wrap"}  # a narrow page shows every control whole

# A kernel's figures are data: JupyterLab and the report draw them, and no notebook stores plotly.js.
pio.renderers.default = "plotly_mimetype"


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


def explore(draw: Callable[..., go.Figure], **controls: ipywidgets.ValueWidget) -> None:
    """Show `draw(**values)`, where the values are those of the `controls` (ipywidgets) of the same names.

    With a front-end the controls are shown and redraw the figure; without one only the figure is. The notebook keeps
    the figure last drawn, either way.
    An error of the first drawing is raised; a later one is shown under the controls until the next success.
    """
    figure = draw(**_values(controls))
    if not has_frontend():
        display(figure)
        return
    copy = uuid.uuid4().hex
    display(_live_view(draw, figure, controls, copy))
    display(as_data(figure), raw=True, display_id=copy)


def as_data(figure: go.Figure) -> dict[str, object]:
    """`figure` as the MIME bundle that a notebook stores."""
    return dict(pio.renderers["plotly_mimetype"].to_mimebundle(figure.to_dict()))


def put(shown: ipywidgets.Output, figure: go.Figure) -> None:
    """Replace what is shown. The height is kept while JupyterLab draws, so the page below does not jump."""
    shown.layout.min_height = f"{figure.layout.height or 360}px"
    shown.outputs = ({"output_type": "display_data", "data": as_data(figure), "metadata": {}},)


def _live_view(
    draw: Callable[..., go.Figure], figure: go.Figure, controls: dict[str, ipywidgets.ValueWidget], copy: str
) -> ipywidgets.VBox:
    """Controls, errors, and `figure` in an output that follows the controls, as does the output with id `copy`.

    `ipywidgets.interactive_output` would clear the figure when drawing fails, and store no copy.
    """
    shown = ipywidgets.Output()
    put(shown, figure)
    problem = ipywidgets.HTML()

    def redraw(_change: Any) -> None:
        try:
            new = draw(**_values(controls))
            put(shown, new)
            update_display(as_data(new), raw=True, display_id=copy)
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


def _values(controls: dict[str, ipywidgets.ValueWidget]) -> dict[str, Any]:
    return {name: control.value for name, control in controls.items()}
