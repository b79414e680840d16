"""What the figures of a sweep share: one slice of a frame, its labels in order, and what a subtitle says of both."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from ddtree.workbook.plots.theme import dress, for_phone
from ddtree.workbook.sweep.slices import ONLY

SYMBOLS = {"autoregressive": "square", "chain": "diamond", "tree": "circle"}
UNCLEAR = "±"  # marks a speed-up that may be none


def in_slice(frame: pd.DataFrame, slice_name: str) -> pd.DataFrame:
    """The rows of one slice. Raises ValueError, naming the slices there are, if it has none."""
    rows = frame[frame["slice"] == slice_name]
    if rows.empty:
        known = ", ".join(f'"{name}"' for name in frame["slice"].unique())
        raise ValueError(f'There is no slice "{slice_name}" in this sweep; it has {known or "none"}.')
    return rows


def ordered_labels(labels: set[str]) -> list[str]:
    """Autoregressive, chain, trees by budget, and last the tree whose budget is chosen round by round."""

    def place(label: str) -> tuple[int, int]:
        kind, _, budget = label.partition(" ")
        fixed = int(budget) if budget.isdigit() else 0
        return ["autoregressive", "chain", "tree"].index(kind) + (budget == "auto"), fixed

    return sorted(labels, key=place)


def tick(label: str) -> str:
    """What an axis of budgets says: "16" for "tree 16", "chain" for "chain"."""
    return label.removeprefix("tree ")


def sentence_on(slice_name: str) -> str:
    """A sentence for a subtitle that names the slice, "" for the only one."""
    return "" if slice_name == ONLY else f" Runs with {slice_name}."


def bars(frame: pd.DataFrame, value: str, colour: str) -> dict[str, object]:
    """Error bars of a colour from the columns VALUE, VALUE_lo and VALUE_hi."""
    above = (frame[f"{value}_hi"] - frame[value]).tolist()
    below = (frame[value] - frame[f"{value}_lo"]).tolist()
    look = {"color": colour, "thickness": 1.2, "width": 4}
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below, **look}


def capital(text: str) -> str:
    """ "Tree 16" for "tree 16", at the start of a sentence."""
    return text[:1].upper() + text[1:]


def resampled(prompts: pd.Series) -> str:
    """How an interval came about: "95% interval over 8 prompts", or that there is none."""
    least, most = int(prompts.min()), int(prompts.max())
    if most < 2:
        return "one prompt, so no interval"
    return f"95% interval over {most if least == most else f'{least} to {most}'} prompts"


def draw_nothing(why: str) -> go.Figure:
    """A figure that says why there is nothing to draw, so that a control can come to it and leave it again."""
    figure = go.Figure()
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    title, _ = for_phone(why, "")
    return dress(figure, title=title, subtitle="", plot_height=20, footer=20)
