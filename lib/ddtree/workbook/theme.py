"""Gives all figures one style: colours, layout, panels, series with intervals and hover, and token texts made visible.

A colour means the same in every figure, and titles break into lines that a page of 390 pixels can show.
"""

from __future__ import annotations

import html
import re
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import plotly.io as pio
from plotly.subplots import make_subplots

# Okabe and Ito's colours, told apart with every common form of colour blindness.
ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
GREY = "#7F7F7F"  # reads on white and on black

ACCENT = VERMILION  # the accepted path
STRATEGY_COLOURS = {"autoregressive": GREY, "chain": ORANGE, "tree": BLUE}
STAGE_COLOURS = {
    "draft": "#B3BAC5",
    "verify": "#8592A6",
    "build": GREEN,
    "compile": SKY,
    "sample": VERMILION,
    "commit": PURPLE,
}
TEMPERATURE_ANCHORS = {0.0: GREEN, 0.3: SKY, 0.6: BLUE, 0.8: PURPLE, 1.0: VERMILION, 1.5: ORANGE, 2.0: YELLOW}

TIMES = "\N{MULTIPLICATION SIGN}"
NO_BREAK = "\N{NO-BREAK SPACE}"
GLUED = re.compile(r"(?<=\bT) (?==)|(?<=\bT =) |(?<=[a-z]) (?=\d+/\d)|(?<=\d) (?=ms\b)")

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
INK = "#767676"  # the grey with equal contrast to a white and a nearly black page
CLEAR = "rgba(0, 0, 0, 0)"
GRID = "rgba(128, 128, 128, 0.25)"
TEMPLATE = "ddtree"  # the name under which plotly knows the template

HEADER_ROOM, PANEL_HEADER = 84, 102  # pixels above the plot for a title and a subtitle of one line; with a heading
FOOTER_ROOM, BARE_FOOTER = 104, 60  # pixels under the plot for tick labels, axis title and a legend of one row; without
LEGEND_DROP = 58  # pixels from the plot's lower edge to the legend: tick labels and axis title
TITLE_LINE, SUBTITLE_LINE = 20, 16  # pixels of each further line
TITLE_CHARACTERS, SUBTITLE_CHARACTERS = 46, 58  # of a line at 390 pixels
ROW, PANEL_GAP = 34, 46  # pixels: one line of a panel, and between panels

SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "star")  # of the series of one colour, in order
FIELD = re.compile(r"\{(\w+)")  # of a hover text


def strategy_colour(strategy: str) -> str:
    """The colour of "autoregressive", "chain" or "tree". Raises ValueError for another name."""
    if strategy not in STRATEGY_COLOURS:
        raise ValueError(f'strategy is "{strategy}"; it must be one of {", ".join(STRATEGY_COLOURS)}.')
    return STRATEGY_COLOURS[strategy]


def temperature_colour(temperature: float) -> str:
    """The colour "#RRGGBB" of a temperature, the same in every figure; above 2.0 it is that of 2.0.

    Between anchors from Okabe and Ito's palette it blends, so that no two temperatures of 0 to 2 share one.
    Raises ValueError for a negative temperature.
    """
    if not temperature >= 0:
        raise ValueError(f"temperature is {temperature}; it must be 0 or more.")
    colours = TEMPERATURE_ANCHORS.values()
    channels = [[int(colour[i : i + 2], 16) for colour in colours] for i in (1, 3, 5)]
    blended = [np.interp(temperature, list(TEMPERATURE_ANCHORS), channel) for channel in channels]
    return "#" + "".join(f"{round(channel):02X}" for channel in blended)


class Line(NamedTuple):
    """One decoder at one setting: "tree 16/4", its strategy, and its place among the labels of that strategy."""

    label: str
    strategy: str
    place: int


def lines(frame: pd.DataFrame) -> list[Line]:
    """The labels of `frame`: autoregressive, chains, trees; smaller budgets first, then by name."""
    kinds = frame[["label", "strategy", "budget"]].drop_duplicates()
    order = {name: place for place, name in enumerate(STRATEGY_COLOURS)}
    kinds = kinds.assign(order=kinds["strategy"].map(order)).sort_values(["order", "budget", "label"])
    places = kinds.groupby("strategy").cumcount()
    return [Line(*line) for line in zip(kinds["label"], kinds["strategy"], places, strict=True)]


def temperatures(frame: pd.DataFrame) -> list[float]:
    """The temperatures of `frame`, ascending."""
    return sorted(float(value) for value in frame["temperature"].unique())


def temperature_label(temperature: float) -> str:
    """ "T = 0.6" """
    return f"T = {temperature:g}"


def ends(values: Sequence[float]) -> list[float]:
    """What a title has room for: all of up to two values, else the first and the last."""
    return list(values) if len(values) <= 2 else [values[0], values[-1]]


def describe_ends(values: Sequence[float], describe: Callable[[float], str], separator: str = ", ") -> str:
    """What `describe` says of the first and the last temperature: "1.5× at T = 0, 1.1× at T = 1"."""
    return separator.join(f"{describe(value)} at {temperature_label(value)}" for value in ends(values))


def capitalised(text: str) -> str:
    """ "Tree 16" for "tree 16", at the start of a sentence."""
    return text[:1].upper() + text[1:]


def jitter(number: int, of: int, room: float) -> float:
    """The shift of one of several marks that share a place, all within `room` around it."""
    return room * (number / (of - 1) - 0.5) if of > 1 else 0.0


def interval_columns(*values: str) -> list[str]:
    """The columns of values with intervals: VALUE, VALUE_lo and VALUE_hi of each."""
    return [f"{value}{end}" for value in values for end in ("", "_lo", "_hi")]


def require(frame: pd.DataFrame, name: str, columns: Iterable[str], *, inside: Sequence[str] = ()) -> None:
    """Checks that `frame` has rows and the columns, and that each value of `inside` lies in its interval.

    Raises ValueError that names the missing columns, or the first value outside its interval.
    """
    missing = [column for column in (*columns, *interval_columns(*inside)) if column not in frame.columns]
    if missing:
        raise ValueError(f"{name} lacks the columns {', '.join(missing)}; it has {', '.join(map(str, frame.columns))}.")
    if frame.empty:
        raise ValueError(f"{name} has no rows; there is nothing to draw.")
    for value in inside:
        outside = frame[(frame[value] < frame[f"{value}_lo"]) | (frame[value] > frame[f"{value}_hi"])]
        for row in outside.to_dict("records"):
            raise ValueError(
                f"{value} of {row['label']} at temperature {row['temperature']:g} is {row[value]:g}, outside its "
                f"interval {row[f'{value}_lo']:g} to {row[f'{value}_hi']:g}."
            )


AXIS: dict[str, Any] = dict.fromkeys(("gridcolor", "linecolor", "zerolinecolor", "tickcolor"), GRID)
AXIS |= {"automargin": True, "ticks": "outside", "nticks": 7, "title": {"standoff": 10, "font": {"size": 13}}}
# Transparent paper, titles at the left, and a mode bar of its own colours: plotly's own is half black on clear paper.
pio.templates[TEMPLATE] = go.layout.Template(
    layout={
        "font": {"family": FONT, "size": 12, "color": INK},
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "title": {"x": 0.012, "xanchor": "left", "y": 1, "yref": "container", "yanchor": "top", "pad": {"t": 14}}
        | {"font": {"size": 15}, "subtitle": {"font": {"size": 12}}},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "yanchor": "top", "itemwidth": 42},
        "xaxis": AXIS,
        "yaxis": AXIS,
        "bargap": 0.3,
        "hoverlabel": {"align": "left"},
        "modebar": {"bgcolor": CLEAR, "color": GREY, "activecolor": BLUE},
    }
)


def apply_layout(
    figure: go.Figure,
    title: str,
    subtitle: str,
    heights: int | Sequence[int],
    *,
    gap: int = PANEL_GAP,
    header: int | None = None,
    footer: int = FOOTER_ROOM,
    legend_drop: int = LEGEND_DROP,
    narrow: bool = True,
) -> go.Figure:
    """`figure` in the template, with titles above and the legend under a plot area of the given pixel height.

    Several `heights` are those of panels, `gap` apart; above them there is room for a heading. `header` and `footer`
    are the pixels kept above and below the plot area, further lines of titles add to the header; the legend begins
    `legend_drop` below. `narrow` breaks titles for a page of 390 pixels.
    """
    panels = [heights] if isinstance(heights, int) else heights
    plot_height = sum(panels) + gap * (len(panels) - 1)
    if header is None:
        header = HEADER_ROOM if isinstance(heights, int) else PANEL_HEADER
    if narrow:
        title, subtitle = break_lines(title, TITLE_CHARACTERS), break_lines(subtitle, SUBTITLE_CHARACTERS)
    further = title.count("<br>")
    header += TITLE_LINE * further + SUBTITLE_LINE * subtitle.count("<br>")
    return figure.update_layout(
        template=TEMPLATE,
        title={"text": title, "subtitle": {"text": subtitle}, "pad": {"t": 14 + TITLE_LINE * further // 2}},
        height=header + plot_height + footer,
        margin={"t": header, "r": 16, "b": footer},
        legend={"y": -legend_drop / plot_height},
    )


def break_lines(text: str, longest: int) -> str:
    """As few lines of at most `longest` characters as possible, of about one length, "T = 1" and "tree 16/4" unbroken.

    A space stays before each break, so that a page may show the text without its breaks.
    """
    glued = GLUED.sub(NO_BREAK, text)
    fewest = len(textwrap.wrap(glued, longest))
    even = next(width for width in range(1, longest + 1) if len(textwrap.wrap(glued, width)) <= fewest)
    return " <br>".join(textwrap.wrap(glued, even)).replace(NO_BREAK, " ")


def empty_figure(reason: str) -> go.Figure:
    """A figure that only says why there is nothing to draw, for a control that can be set to such a case."""
    figure = go.Figure().update_xaxes(visible=False).update_yaxes(visible=False)
    return apply_layout(figure, reason, "", 20, footer=20)


def stacked_panels(
    headings: Sequence[str], heights: Sequence[int], *, gap: int = PANEL_GAP, shared: bool = True
) -> go.Figure:
    """Panels of the given pixel heights above one another, headed at the left; `shared` gives them one x axis."""
    total = sum(heights) + gap * (len(heights) - 1)
    figure = make_subplots(
        rows=len(heights),
        cols=1,
        shared_xaxes=shared,
        row_heights=list(heights),
        vertical_spacing=gap / total if len(heights) > 1 else 0,
        subplot_titles=list(headings),
    )
    return figure.update_annotations(x=0, xanchor="left", font={"size": 13})


def label_panels(frame: pd.DataFrame) -> tuple[go.Figure, list[int]]:
    """A panel for each temperature with a line for each of its labels, the first on top; and the heights in pixels."""
    measured = frame.groupby("temperature")["label"].agg(set).sort_index()
    present = [[line.label for line in lines(frame) if line.label in labels] for labels in measured]
    heights = [ROW * len(labels) + 12 for labels in present]
    figure = stacked_panels([temperature_label(value) for value in measured.index], heights)
    for row, labels in enumerate(present, start=1):
        name_rows(figure, labels, row=row)
    return figure, heights


def name_rows(figure: go.Figure, names: Sequence[str], **where: int) -> None:
    """Puts the names on the y axis, each at its own line, the first on top."""
    order = {"categoryorder": "array", "categoryarray": list(names), "range": [len(names) - 0.5, -0.5]}
    figure.update_yaxes(tickmode="linear", dtick=1, **order, **where)


def named_ticks(names: Iterable[object]) -> dict[str, list[Any]]:
    """Axis ticks at 0, 1, 2, ... with these names."""
    texts = [str(name) for name in names]
    return {"tickvals": list(range(len(texts))), "ticktext": texts}


def add_series(
    figure: go.Figure,
    frame: pd.DataFrame,
    x: str | Iterable[Any],
    y: str | Iterable[Any],
    *,
    name: str = "",
    colour: str | list[str] = INK,
    mode: str = "lines+markers",
    hover: str = "",
    extra: str | None = None,
    row: int | None = None,
    group: str | None = None,
    error_x: str | None = None,
    error_y: str | None = None,
    error_colour: str | None = None,
    **style: Any,
) -> None:
    """Adds one series of `frame`: a scatter trace, or bars with the mode "bar" (upright) or "bar h" (lying).

    Args:
        x, y: a column, or the values themselves.
        name: in the legend; a series without a name is not in it.
        hover: names values in braces, as in "{y:.1f} ({speed_lo:.1f} to {speed_hi:.1f})": x, y, text, or a column. A
            series without it says nothing when pointed at.
        extra: what the hover box says of the series; its name by default.
        row: the panel, from 1; a group (a name by default) is in the legend once for all panels.
        error_x, error_y: the column whose interval is drawn.
        style: further properties of the trace; those of `marker` and `line` add to the colour.
    """
    fields = [field for field in dict.fromkeys(FIELD.findall(hover)) if field not in ("x", "y", "text")]
    found: dict[str, Any] = {"name": name or None}
    for axis, values in (("x", x), ("y", y)):
        found[axis] = frame[values].tolist() if isinstance(values, str) else list(values)
    if hover:
        shown = FIELD.sub(lambda m: f"%{{customdata[{fields.index(m[1])}]" if m[1] in fields else f"%{{{m[1]}", hover)
        found["hovertemplate"] = f"{shown}<extra>{name if extra is None else extra}</extra>"
        found["customdata"] = frame[fields].to_numpy().tolist() if fields else None
    else:
        found["hoverinfo"] = "skip"
    if not name:
        found["showlegend"] = False
    elif row is not None:
        found["legendgroup"] = group or name
        found["showlegend"] = found["legendgroup"] not in {trace.legendgroup for trace in figure.data}
    for axis, value in (("error_x", error_x), ("error_y", error_y)):
        if value:
            middle, low, high = (frame[column].astype(float) for column in interval_columns(value))
            # An end on the wrong side has length 0.
            above, below = ((far - near).clip(lower=0).tolist() for far, near in ((high, middle), (middle, low)))
            style_of_bar = {"color": error_colour or colour, "thickness": 1.2, "width": 4}
            found[axis] = {"type": "data", "symmetric": False, "array": above, "arrayminus": below} | style_of_bar
    found["marker"] = {"color": colour} | style.pop("marker", {})
    if "lines" in mode:
        found["line"] = {"color": colour, "width": 2} | style.pop("line", {})
    place = {} if row is None else {"row": row, "col": 1}
    if mode.startswith("bar"):
        figure.add_bar(orientation="h" if mode == "bar h" else "v", **(found | style), **place)
    else:
        figure.add_scatter(mode=mode, **(found | style), **place)


VISIBLE = str.maketrans({" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥", "\u00a0": "⍽"})
WIDE = ("W", "F")  # East Asian glyphs that fill a whole em


def visible_text(text: str) -> str:
    """`text` with spaces, line ends and tabs as signs, other unprintable characters as \\x.., and ∅ if empty."""
    shown = text.translate(VISIBLE)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown) or "∅"


def plotly_text(text: str) -> str:
    """`text` as plotly will show it letter for letter: no tags, no entities, no formula between dollar signs."""
    return html.escape(text, quote=False).replace("$", "&#36;")


def shortened(text: str, length: int) -> str:
    """`text`, or its beginning and an ellipsis: at most `length` characters."""
    return text if len(text) <= length else text[: length - 1] + "…"


def text_width(text: str, font_size: float) -> float:
    """Rough width in pixels, on the safe side for running text in a sans-serif font."""
    ems = sum(1.0 if unicodedata.east_asian_width(c) in WIDE or c in "␣⏎␍⇥⍽∅…" else 0.6 for c in text)
    return ems * font_size
