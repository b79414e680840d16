"""A plotly figure as the report shows it: its title becomes a caption that can wrap, the rest stays data."""

import json
import re
from html import escape, unescape
from typing import Any, NamedTuple

from markupsafe import Markup

PLOTLY = "application/vnd.plotly.v1+json"
DEFAULT_HEIGHT = 450  # pixels, plotly's own
COLUMN_WIDTH = 300  # pixels that one of several plots side by side needs to be read on a phone
TITLE_ROOM, TITLE_LINE, SUBTITLE_LINE = 68, 20, 16  # pixels of the top margin that a title took, and further lines
TAGS = re.compile(r"(</?(?:b|i|em|strong|sub|sup)>|<br\s*/?>)")  # those of plotly that a caption keeps


class FigureView(NamedTuple):
    """Title as plain text, caption as HTML, height and least width in pixels, the figure as JSON safe in a script."""

    title: str
    caption: Markup
    height: int
    min_width: int
    json: Markup


def figure_view(figure: dict[str, Any]) -> FigureView:
    """The view of a figure in plotly's JSON form; `figure` itself stays as it was."""
    layout = dict(figure.get("layout", {}))
    title = layout.pop("title", None) or {}
    title = {"text": title} if isinstance(title, str) else title
    subtitle = (title.get("subtitle") or {}).get("text")
    if title.get("text"):
        margin = layout.get("margin", {})
        top = _top_margin(layout, title["text"], subtitle or "")
        if "height" in layout and "t" in margin:  # the plot area keeps its height
            layout["height"] -= max(0, margin["t"] - top)
        layout["margin"] = {**margin, "t": top}
    view = {"data": figure["data"], "layout": layout, **({"frames": figure["frames"]} if "frames" in figure else {})}
    return FigureView(
        title=_plain(title.get("text") or ""),
        caption=_caption(title.get("text"), subtitle),
        height=int(layout.get("height") or DEFAULT_HEIGHT),
        min_width=_min_width(layout),
        json=Markup(json.dumps(view, separators=(",", ":")).replace("<", "\\u003c")),  # no </script> inside
    )


def _caption(text: str | None, subtitle: str | None) -> Markup:
    if not text:
        return Markup()
    small = f"<small>{_inline_html(subtitle)}</small>" if subtitle else ""
    return Markup(_inline_html(text) + small)


def _inline_html(text: str) -> str:
    """Plotly's text as HTML: its tags stay, its entities are the characters that plotly would show."""
    pieces = TAGS.split(text)  # texts and tags in turn
    return "".join(piece if i % 2 else escape(unescape(piece), quote=False) for i, piece in enumerate(pieces))


def _plain(text: str) -> str:
    return " ".join(unescape(TAGS.sub(" ", text)).split())


def _top_margin(layout: dict[str, Any], title: str, subtitle: str) -> int:
    labelled = layout.get("annotations") or layout.get("updatemenus")
    least = 40 if labelled else 16
    given = layout.get("margin", {}).get("t")
    taken = TITLE_ROOM + TITLE_LINE * title.count("<br>") + SUBTITLE_LINE * subtitle.count("<br>")
    return least if given is None else max(least, int(given) - taken)


def _min_width(layout: dict[str, Any]) -> int:
    starts = {
        next(iter(axis["domain"]))
        for name, axis in layout.items()
        if name.startswith("xaxis") and isinstance(axis, dict) and "domain" in axis
    }
    if len(starts) > 1:
        return COLUMN_WIDTH * len(starts)
    return int(layout.get("width") or 0)
