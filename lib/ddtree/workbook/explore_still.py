"""The still twin of a live figure: an output that a notebook keeps, hidden for as long as the live one stands above."""

import uuid

import plotly.graph_objects as go
import plotly.io as pio
from IPython.display import display, update_display

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
