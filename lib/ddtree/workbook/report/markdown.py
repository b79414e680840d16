"""Markdown with LaTeX formulas as HTML with MathML; formulas inside code stay code."""

import re
from html import escape
from typing import Any

from latex2mathml.converter import convert
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath


class OfflineMarkdown:
    """Renders the markdown of one cell; pictures come from its attachments or from files under `folder`."""

    def __init__(self, attachments: dict[str, Any], folder: str) -> None:
        self._renderer = _MathMLRenderer(
            escape=False, attachments=attachments, embed_images=True, exclude_anchor_links=True, path=folder
        )

    def to_html(self, source: str) -> str:
        """The HTML of `source`."""
        return MarkdownWithMath(renderer=self._renderer).render(source)


class _MathMLRenderer(IPythonRenderer):
    def inline_html(self, html: str) -> str:
        # To embed pictures the base class completes every piece of HTML, so that <a> would be closed at once.
        return str(super().inline_html(html)) if html.startswith("<img") else html

    def inline_math(self, body: str) -> str:
        return mathml(body, "inline")

    def block_math(self, body: str) -> str:
        return mathml(body, "block")

    def latex_environment(self, name: str, body: str) -> str:
        return mathml(rf"\begin{{{name}}}{body}\end{{{name}}}", "block")


def mathml(latex: str, display: str) -> str:
    """MathML of a formula; `display` is "inline" or "block". One that cannot be set is shown as its source."""
    known = latex.strip().replace("{aligned}", "{align*}")  # the name that latex2mathml has for it
    try:
        return str(convert(known, display=display))
    except Exception as error:  # latex2mathml has no common base class for its errors
        reason = f"{type(error).__name__}: this formula could not be set"
        return f'<code class="tex" title="{escape(reason)}">{escape(latex.strip())}</code>'


def latex_output(source: str) -> str:
    """MathML of a text/latex output, whose dollar signs are optional."""
    return mathml(re.sub(r"\A\s*\$+|\$+\s*\Z", "", source), "block")
