"""Token texts as a figure can show them: whitespace to be seen, and no character that plotly would interpret."""

from __future__ import annotations

import html
import unicodedata

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
