"""Export an executed notebook as one HTML file that fetches nothing: prose and figures first, code on demand."""

import base64
import json
import re
import sys
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
from bs4 import BeautifulSoup, Tag
from jinja2 import pass_context
from latex2mathml.converter import convert
from markupsafe import Markup
from nbconvert.exporters import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode
from plotly.offline import get_plotlyjs
from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]
from traitlets.config import Config

from ddtree.workbook.records import write_text
from ddtree.workbook.report.run_info import PLOTLY, body_cells, figure_view, has_figures, run_facts

MAX_MB = 6
NAMED = 3
MEGABYTE = 10**6


class Part(NamedTuple):
    """One output of a notebook: what a reader would call it, and its size in bytes."""

    name: str
    size: int


def too_heavy(html: str, notebook: NotebookNode) -> str:
    """A sentence when `html` has more than MAX_MB megabytes, with the largest outputs named; else ""."""
    size = len(html.encode())
    if size <= MAX_MB * MEGABYTE:
        return ""
    largest = ", ".join(f"{part.name} ({_megabytes(part.size)})" for part in parts(notebook)[:NAMED])
    return (
        f"This report has {_megabytes(size)}, more than the {MAX_MB} MB that a mail takes; "
        f"draw fewer points or print less. Largest: {largest or 'its text'}."
    )


def parts(notebook: NotebookNode) -> list[Part]:
    """Every output of the notebook, the largest first."""
    found = []
    for number, cell in enumerate(notebook.cells, start=1):
        for output in cell.get("outputs", []):
            content = output.get("data") or output.get("text") or output.get("traceback") or ""
            found.append(Part(_name(output, number), len(json.dumps(content, ensure_ascii=False).encode())))
    return sorted(found, key=lambda part: part.size, reverse=True)


def _name(output: NotebookNode, number: int) -> str:
    figure = output.get("data", {}).get(PLOTLY)
    if figure is None:
        return f"an output of cell {number}"
    caption = figure_view(figure).title
    return f"the figure “{caption}”" if caption else f"the figure of cell {number}"


def _megabytes(size: int) -> str:
    return f"{size / MEGABYTE:.1f} MB"


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


CONTENT_SECURITY_POLICY = (
    "default-src 'none'; img-src data: blob:; font-src data:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline' 'unsafe-eval'; worker-src blob:"
)
FETCHING = ("script", "link", "iframe", "frame", "embed", "object", "img", "image", "source", "video", "audio", "track")
ADDRESSES = ("src", "href", "xlink:href", "data", "poster", "srcset")
CSS_ADDRESS = re.compile(r"url\(\s*['\"]?(?!data:|#)[^)]*\)|@import[^;]*;", re.IGNORECASE)


def without_requests(html: str) -> str:
    """`html` without elements and style rules that point outside the file."""
    soup = BeautifulSoup(html, "html.parser")
    for element in soup.find_all(FETCHING):
        address = _outside(element)
        if address is None:
            continue
        if element.name in ("script", "link"):
            element.decompose()
        else:
            element.replace_with(_substitute(soup, element, address))
    for style in soup.find_all("style"):
        if style.string and CSS_ADDRESS.search(style.string):
            style.string = CSS_ADDRESS.sub("", style.string)
    for element in soup.find_all(style=CSS_ADDRESS):
        element["style"] = CSS_ADDRESS.sub("", str(element["style"]))
    return str(soup)


def _outside(element: Tag) -> str | None:
    for name in ADDRESSES:
        address = element.get(name)
        if isinstance(address, str) and address and not address.startswith(("data:", "#")):
            return address
    return None


def _substitute(soup: BeautifulSoup, element: Tag, address: str) -> Tag:
    note = soup.new_tag("span", attrs={"class": "absent"})
    note.append(f"[{element.get('alt') or element.name} is not part of this file: ")
    where = soup.new_tag("a", href=address) if address.startswith(("http://", "https://")) else soup.new_tag("code")
    where.string = address
    note.append(where)
    note.append("]")
    return note


TEMPLATES = Path(__file__).parent / "templates"
PLOTLY_PLACEHOLDER = "<!-- plotly.js -->"
WEIGHT_PLACEHOLDER = "<!-- weight -->"


class ReportError(ValueError):
    """The notebook cannot be read."""


def export(notebook_path: str | Path, html_path: str | Path) -> Path:
    """Write the report of an executed notebook, failed ones included, and return its path.

    A result.json beside the notebook adds machine, versions, date and revision. Raises ReportError when
    the file is no notebook, RecordError when the folder cannot be written. A report too heavy to send is written
    all the same, and says so in itself and in a line on stderr, with the outputs that make it so.
    """
    notebook_path, html_path = Path(notebook_path), Path(html_path)
    try:
        notebook = nbformat.read(notebook_path, as_version=4)
    except (OSError, ValueError) as error:
        raise ReportError(f"The notebook {notebook_path} cannot be read: {error}.") from error
    html = render(notebook, notebook_path)
    weight = too_heavy(html, notebook)
    if weight:
        print(f"{html_path}: {weight}", file=sys.stderr)
    banner = f'<div class="banner">{escape(weight)}</div>' if weight else ""
    write_text(html_path, html.replace(WEIGHT_PLACEHOLDER, banner, 1))
    return html_path


def render(notebook: NotebookNode, notebook_path: Path) -> str:
    """The report's HTML; `notebook_path` says where pictures and result.json lie and names the report."""
    run = run_facts(notebook, notebook_path)
    drawn = has_figures(notebook)
    resources = {
        "metadata": {"name": notebook_path.stem, "path": str(notebook_path.parent)},
        "run": run,
        "code_css": _code_css(),
        "csp": CONTENT_SECURITY_POLICY,
        "weight_placeholder": WEIGHT_PLACEHOLDER,
        "plotlyjs_placeholder": PLOTLY_PLACEHOLDER if drawn else "",
    }
    shown = NotebookNode({**notebook, "cells": body_cells(notebook)})
    html, _ = _ReportExporter(extra_template_basedirs=[str(TEMPLATES)]).from_notebook_node(shown, resources)
    html = without_requests(html)
    if drawn:  # last, because parsing 5 MB of script takes seconds and finds nothing
        html = html.replace(PLOTLY_PLACEHOLDER, f"<script>{get_plotlyjs()}</script>", 1)
    return html


class _ReportExporter(HTMLExporter):
    """nbconvert with the project's template, formulas as MathML and figures as data."""

    def _template_name_default(self) -> str:
        return "report"

    @property
    def default_config(self) -> Config:
        config = super().default_config.copy()
        priority = [PLOTLY, "image/svg+xml", "image/png", "image/jpeg", "text/html", "text/markdown", "text/latex"]
        config.merge(Config({"NbConvertBase": {"display_data_priority": [*priority, "text/plain"]}}))
        return config

    def default_filters(self) -> Any:
        yield from super().default_filters()
        yield "figure_view", figure_view
        yield "latex_output", latex_output
        yield "text_base64", lambda text: base64.b64encode(text.encode()).decode()

    @pass_context
    def markdown2html(self, context: Any, source: str) -> Markup:
        folder = context["resources"]["metadata"]["path"]
        return Markup(OfflineMarkdown(context["cell"].get("attachments", {}), folder).to_html(source))


def _code_css() -> str:
    light = HtmlFormatter(style="xcode").get_style_defs(".highlight")
    dark = HtmlFormatter(style="github-dark").get_style_defs(".highlight")
    return f"{light}\n@media screen and (prefers-color-scheme: dark) {{\n{dark}\n}}"
