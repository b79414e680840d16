"""The look that all figures share: colours, layout, small multiples, intervals, and token texts that can be shown."""

from __future__ import annotations

import html
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go
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
TEMPERATURE_ANCHORS = (
    (0.0, GREEN),
    (0.3, SKY),
    (0.6, BLUE),
    (0.8, PURPLE),
    (1.0, VERMILION),
    (1.5, ORANGE),
    (2.0, YELLOW),
)

TIMES = "\N{MULTIPLICATION SIGN}"
NO_BREAK = "\N{NO-BREAK SPACE}"
GLUED = re.compile(r"(?<=\bT) (?==)|(?<=\bT =) |(?<=[a-z]) (?=\d+/\d)|(?<=\d) (?=ms\b)")

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
INK = "#767676"  # the grey with equal contrast to a white and a nearly black page
CLEAR = "rgba(0, 0, 0, 0)"
GRID = "rgba(128, 128, 128, 0.25)"
HEADER_ROOM = 84  # pixels above the plot for a title and a subtitle of one line each
TITLE_LINE, SUBTITLE_LINE = 20, 16  # pixels of each further line
TITLE_CHARACTERS, SUBTITLE_CHARACTERS = 46, 58  # of a line on a phone
LEGEND_DROP = 58  # pixels from the plot's lower edge to the legend: tick labels and axis title
FOOTER_ROOM = 104  # pixels under the plot for tick labels, axis title and a legend of one row


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
    (low, low_colour), *higher = TEMPERATURE_ANCHORS
    for high, high_colour in higher:
        if temperature <= high:
            return _blend(low_colour, high_colour, (temperature - low) / (high - low))
        low, low_colour = high, high_colour
    return low_colour


def _blend(start: str, end: str, share: float) -> str:
    channels = (
        round(int(start[i : i + 2], 16) * (1 - share) + int(end[i : i + 2], 16) * share) for i in range(1, 7, 2)
    )
    return "#" + "".join(f"{channel:02X}" for channel in channels)


def for_phone(title: str, subtitle: str) -> tuple[str, str]:
    """Title and subtitle broken into lines that a page of 390 pixels can show, "T = 1" and "tree 16/4" unbroken.

    A space stays before each break, so that a page may show the text without its breaks.
    """
    return _balanced(title, TITLE_CHARACTERS), _balanced(subtitle, SUBTITLE_CHARACTERS)


def _balanced(text: str, longest: int) -> str:
    """As few lines of at most `longest` characters as will do, of about one length."""
    glued = GLUED.sub(NO_BREAK, text)
    fewest = len(textwrap.wrap(glued, longest))
    even = next(width for width in range(1, longest + 1) if len(textwrap.wrap(glued, width)) <= fewest)
    return " <br>".join(textwrap.wrap(glued, even)).replace(NO_BREAK, " ")


def template() -> go.layout.Template:
    """Fonts, transparent paper, grid, and titles at the left, as a plotly template."""
    axis = {
        "automargin": True,
        "gridcolor": GRID,
        "linecolor": GRID,
        "zerolinecolor": GRID,
        "tickcolor": GRID,
        "ticks": "outside",
        "nticks": 7,
        "title": {"standoff": 10, "font": {"size": 13}},
    }
    layout = go.Layout(
        font={"family": FONT, "size": 12, "color": INK},
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        title={
            "x": 0.012,
            "xanchor": "left",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "pad": {"t": 14},
            "font": {"size": 15},
            "subtitle": {"font": {"size": 12}},
        },
        legend={"orientation": "h", "x": 0, "xanchor": "left", "yanchor": "top", "itemwidth": 42},
        xaxis=axis,
        yaxis=axis,
        bargap=0.3,
        hoverlabel={"align": "left"},
        modebar={"bgcolor": CLEAR, "color": GREY, "activecolor": BLUE},  # plotly's own is half black on clear paper
    )
    return go.layout.Template(layout=layout)


def dress(
    figure: go.Figure,
    *,
    title: str,
    subtitle: str,
    plot_height: int,
    header: int = HEADER_ROOM,
    footer: int = FOOTER_ROOM,
    legend_drop: int = LEGEND_DROP,
) -> go.Figure:
    """`figure` in the template, with titles above and the legend under a plot area of `plot_height` pixels.

    `header` and `footer` are the pixels kept above and below the plot area; the legend begins `legend_drop` below it.
    Further lines of title and subtitle add to the header.
    """
    further = title.count("<br>")
    header += TITLE_LINE * further + SUBTITLE_LINE * subtitle.count("<br>")
    return figure.update_layout(
        template=template(),
        title={"text": title, "subtitle": {"text": subtitle}, "pad": {"t": 14 + TITLE_LINE * further // 2}},
        height=header + plot_height + footer,
        margin={"t": header, "r": 16, "b": footer},
        legend={"y": -legend_drop / plot_height},
    )


class Line(NamedTuple):
    """One decoder at one setting: "tree 16/4", its strategy, and its place among the labels of that strategy."""

    label: str
    strategy: str
    place: int


def require(frame: pd.DataFrame, name: str, columns: Iterable[str]) -> None:
    """Raises ValueError if `frame` has no rows or lacks columns, naming them."""
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise ValueError(f"{name} lacks the columns {', '.join(missing)}; it has {', '.join(map(str, frame.columns))}.")
    if frame.empty:
        raise ValueError(f"{name} has no rows; there is nothing to draw.")


def lines(frame: pd.DataFrame) -> list[Line]:
    """The labels of `frame`: autoregressive, chains, trees; smaller budgets first, then by name."""
    order = list(STRATEGY_COLOURS)
    kinds = frame[["label", "strategy", "budget"]].drop_duplicates().to_dict("records")
    kinds.sort(key=lambda kind: (order.index(kind["strategy"]), kind["budget"], kind["label"]))
    found: list[Line] = []
    for kind in kinds:
        place = sum(line.strategy == kind["strategy"] for line in found)
        found.append(Line(kind["label"], kind["strategy"], place))
    return found


def temperatures(frame: pd.DataFrame) -> list[float]:
    """The temperatures of `frame`, ascending."""
    return sorted(float(value) for value in frame["temperature"].unique())


def error_bars(frame: pd.DataFrame, value: str) -> dict[str, object]:
    """Plotly's error bars from the columns `value`, `value`_lo and `value`_hi.

    Raises ValueError where an interval does not hold its value.
    """
    above = (frame[f"{value}_hi"] - frame[value]).to_numpy(dtype=float)
    below = (frame[value] - frame[f"{value}_lo"]).to_numpy(dtype=float)
    wrong = np.flatnonzero((above < 0) | (below < 0))
    if wrong.size:
        row = frame.iloc[wrong[0]]
        raise ValueError(
            f"{value} of {row['label']} at temperature {row['temperature']:g} is {row[value]:g}, outside its interval "
            f"{row[f'{value}_lo']:g} to {row[f'{value}_hi']:g}."
        )
    return {"type": "data", "symmetric": False, "array": above.tolist(), "arrayminus": below.tolist()}


def at(temperature: float) -> str:
    """ "T = 0.6" """
    return f"T = {temperature:g}"


def first_and_last(values: Sequence[float]) -> list[float]:
    """What a title has room for: all of up to two values, else the first and the last."""
    return list(values) if len(values) <= 2 else [values[0], values[-1]]


ROW, PANEL_GAP = 34, 46  # pixels: one line of a panel, and between panels
HEADER, BARE_FOOTER = HEADER_ROOM + 18, 60  # pixels: titles and a panel's heading; tick labels and axis title


def label_panels(frame: pd.DataFrame) -> tuple[go.Figure, list[int]]:
    """One panel above the other for each temperature, its lines sharing an x axis; and the panels' heights in pixels.

    A line of a panel is a label of `frame`, the first on top.
    """
    values = temperatures(frame)
    names = [line.label for line in lines(frame)]
    present = [[name for name in names if name in set(frame.loc[frame["temperature"] == t, "label"])] for t in values]
    heights = [ROW * len(labels) + 12 for labels in present]
    figure = stacked_panels(values, heights)
    for row, labels in enumerate(present, start=1):
        figure.update_yaxes(
            categoryorder="array", categoryarray=labels, range=[len(labels) - 0.5, -0.5], row=row, col=1
        )
    return figure, heights


def stacked_panels(values: list[float], heights: list[int]) -> go.Figure:
    """Panels of the given pixel heights with one x axis, headed by their temperature at the left."""
    total = sum(heights) + PANEL_GAP * (len(heights) - 1)
    figure = make_subplots(
        rows=len(values),
        cols=1,
        shared_xaxes=True,
        row_heights=heights,
        vertical_spacing=PANEL_GAP / total,
        subplot_titles=[at(value) for value in values],
    )
    return figure.update_annotations(x=0, xanchor="left", font={"size": 13})


def dress_panels(figure: go.Figure, title: str, subtitle: str, heights: list[int], *, legend: bool) -> go.Figure:
    """`dress` for panels: titles broken for a phone, a panel's heading, and no room for a legend without one."""
    total = sum(heights) + PANEL_GAP * (len(heights) - 1)
    footer = FOOTER_ROOM if legend else BARE_FOOTER
    title, subtitle = for_phone(title, subtitle)
    return dress(figure, title=title, subtitle=subtitle, plot_height=total, header=HEADER, footer=footer)


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
