"""How every figure looks: colours with one meaning each, and one dress that reads on light and dark pages."""

from __future__ import annotations

import re
import textwrap

import plotly.graph_objects as go

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
