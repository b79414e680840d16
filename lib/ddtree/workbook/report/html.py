"""Export an executed notebook as one HTML file that fetches nothing: prose and figures first, code on demand."""

import base64
import copy
import json
import re
import sys
from html import escape, unescape
from pathlib import Path
from typing import Any, NamedTuple

from bs4 import BeautifulSoup
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
from ddtree.workbook.report.run_info import HEADING, PAPERMILL_MARK, read_notebook, run_facts, tags

TEMPLATES = Path(__file__).parent / "templates"
PLOTLY_PLACEHOLDER = "<!-- plotly.js -->"
SIZE_PLACEHOLDER = "<!-- size -->"
MAX_MB = 6
NAMED = 3
MEGABYTE = 10**6
PLOTLY = "application/vnd.plotly.v1+json"
DEFAULT_HEIGHT = 450  # pixels, plotly's own
COLUMN_WIDTH = 300  # pixels that one of several plots side by side needs to be read on a phone
TITLE_ROOM, TITLE_LINE, SUBTITLE_LINE = 68, 20, 16  # pixels of the top margin that a title took, and further lines
TAGS = re.compile(r"(</?(?:b|i|em|strong|sub|sup)>|<br\s*/?>)")  # those of plotly that a caption keeps
SCRIPTED = ("application/vnd.jupyter.widget-view+json", "application/javascript")
ABSENT = '<p class="absent">A live control stood here; it has no still picture in this notebook.</p>'
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; img-src data: blob:; font-src data:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline' 'unsafe-eval'; worker-src blob:"
)
FETCHING = ("script", "link", "iframe", "frame", "embed", "object", "img", "image", "source", "video", "audio", "track")
ADDRESSES = ("src", "href", "xlink:href", "data", "poster", "srcset")
CSS_ADDRESS = re.compile(r"url\(\s*['\"]?(?!data:|#)[^)]*\)|@import[^;]*;", re.IGNORECASE)


def export(notebook_path: str | Path, html_path: str | Path) -> Path:
    """Write the report of an executed notebook, failed or not, and return its path.

    run.json and result.json next to the notebook add parameters, machine, versions, date and revision.
    A report above MAX_MB is written all the same; a warning in it and on stderr names the largest outputs.
    Raises NotebookError when the file is not a notebook, RecordError when the folder cannot be written.
    """
    notebook_path, html_path = Path(notebook_path), Path(html_path)
    executed = read_notebook(notebook_path)
    notebook = executed.node
    drawn = any(PLOTLY in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", []))
    light, dark = (HtmlFormatter(style=style).get_style_defs(".highlight") for style in ("xcode", "github-dark"))
    resources = {
        "metadata": {"name": notebook_path.stem, "path": str(notebook_path.parent)},
        "run": run_facts(executed, notebook_path),
        "code_css": f"{light}\n@media screen and (prefers-color-scheme: dark) {{\n{dark}\n}}",
        "csp": CONTENT_SECURITY_POLICY,
        "size_placeholder": SIZE_PLACEHOLDER,
        "plotlyjs_placeholder": PLOTLY_PLACEHOLDER if drawn else "",
    }
    shown = NotebookNode({**notebook, "cells": _visible_cells(notebook)})
    html, _ = _ReportExporter(extra_template_basedirs=[str(TEMPLATES)]).from_notebook_node(shown, resources)
    html = without_requests(html)
    if drawn:  # last, because parsing 5 MB of script takes seconds and finds nothing
        html = html.replace(PLOTLY_PLACEHOLDER, f"<script>{get_plotlyjs()}</script>", 1)
    warning = _size_warning(html, notebook)
    if warning:
        print(f"{html_path}: {warning}", file=sys.stderr)
    banner = f'<div class="banner">{escape(warning)}</div>' if warning else ""
    write_text(html_path, html.replace(SIZE_PLACEHOLDER, banner, 1))
    return html_path


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
        renderer = _MathMLRenderer(
            escape=False,
            attachments=context["cell"].get("attachments", {}),
            embed_images=True,
            exclude_anchor_links=True,
            path=context["resources"]["metadata"]["path"],  # where a cell's local pictures are
        )
        return Markup(MarkdownWithMath(renderer=renderer).render(source))


def _visible_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Copies of the cells to show, without what the report's head shows (title, parameters) and papermill's marks.

    Stream pieces of one cell are joined.
    """
    cells: list[NotebookNode] = []
    titled = False
    for original in notebook.cells:
        if {"parameters", "injected-parameters", PAPERMILL_MARK} & set(tags(original)):
            continue
        cell = copy.deepcopy(original)
        if cell.cell_type == "markdown" and not titled and HEADING.match(cell.source):
            titled = True
            cell.source = HEADING.sub("", cell.source)
        if cell.cell_type == "code":
            cell.outputs = [_without_widgets(output) for output in _join_streams(cell.outputs)]
        if cell.source.strip() or cell.get("outputs"):
            cells.append(cell)
    return cells


def _without_widgets(output: NotebookNode) -> NotebookNode:
    """The output without what only a running kernel or a script could show; a sentence where nothing is left."""
    forms = output.get("data", {})
    if any(form in forms for form in SCRIPTED):
        rest = {form: content for form, content in forms.items() if form not in (*SCRIPTED, "text/plain")}
        output.data = NotebookNode(rest or {"text/html": ABSENT})
    return output


def _join_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    joined: list[NotebookNode] = []
    for output in outputs:
        if joined and output.output_type == joined[-1].output_type == "stream" and output.name == joined[-1].name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    for output in joined:
        if output.output_type == "stream":
            output.text = last_states(output.text)
    return joined


def last_states(text: str) -> str:
    """What a terminal would show: of a line that carriage returns rewrote, the last state that is not empty."""
    lines = [[state for state in line.split("\r") if state.strip()] for line in text.split("\n")]
    return "\n".join(states[-1] if states else "" for states in lines)


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
    text, subtitle = title.get("text") or "", (title.get("subtitle") or {}).get("text") or ""
    if text:
        margin = layout.get("margin", {})
        top = least = 40 if layout.get("annotations") or layout.get("updatemenus") else 16
        if margin.get("t") is not None:
            taken = TITLE_ROOM + TITLE_LINE * text.count("<br>") + SUBTITLE_LINE * subtitle.count("<br>")
            top = max(least, int(margin["t"]) - taken)
            if "height" in layout:  # the plot area keeps its height
                layout["height"] -= max(0, margin["t"] - top)
        layout["margin"] = {**margin, "t": top}
    axes = [axis for name, axis in layout.items() if name.startswith("xaxis") and isinstance(axis, dict)]
    columns = len({axis["domain"][0] for axis in axes if "domain" in axis})
    view = {"data": figure["data"], "layout": layout, **({"frames": figure["frames"]} if "frames" in figure else {})}
    return FigureView(
        title=" ".join(unescape(TAGS.sub(" ", text)).split()),
        caption=Markup(_inline_html(text) + (f"<small>{_inline_html(subtitle)}</small>" if text and subtitle else "")),
        height=int(layout.get("height") or DEFAULT_HEIGHT),
        min_width=COLUMN_WIDTH * columns if columns > 1 else int(layout.get("width") or 0),
        json=Markup(json.dumps(view, separators=(",", ":")).replace("<", "\\u003c")),  # no </script> inside
    )


def _inline_html(text: str) -> str:
    """Plotly's text as HTML: its tags stay, its entities are the characters that plotly would show."""
    pieces = TAGS.split(text)  # texts and tags in turn
    return "".join(piece if i % 2 else escape(unescape(piece), quote=False) for i, piece in enumerate(pieces))


class _MathMLRenderer(IPythonRenderer):
    def inline_html(self, html: str) -> str:
        # To embed pictures the base class completes every piece of HTML: it would close <a> at once.
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


def without_requests(html: str) -> str:
    """`html` without elements and style rules that point outside the file."""
    soup = BeautifulSoup(html, "html.parser")
    for element in soup.find_all(FETCHING):
        addresses = (element.get(name) for name in ADDRESSES)
        outside = (found for found in addresses if isinstance(found, str) and found)
        address = next((found for found in outside if not found.startswith(("data:", "#"))), None)
        if address is None:
            continue
        if element.name in ("script", "link"):
            element.decompose()
            continue
        note = soup.new_tag("span", attrs={"class": "absent"})
        where = soup.new_tag("a", href=address) if address.startswith(("http://", "https://")) else soup.new_tag("code")
        where.string = address
        note.extend([f"[{element.get('alt') or element.name} is not part of this file: ", where, "]"])
        element.replace_with(note)
    for style in soup.find_all("style"):
        if style.string and CSS_ADDRESS.search(style.string):
            style.string = CSS_ADDRESS.sub("", style.string)
    for element in soup.find_all(style=CSS_ADDRESS):
        element["style"] = CSS_ADDRESS.sub("", str(element["style"]))
    return str(soup)


def _size_warning(html: str, notebook: NotebookNode) -> str:
    """A sentence when `html` has more than MAX_MB megabytes, with the largest outputs named; else ""."""
    size = len(html.encode())
    if size <= MAX_MB * MEGABYTE:
        return ""
    sizes: list[tuple[int, str]] = []
    for number, cell in enumerate(notebook.cells, start=1):
        for output in cell.get("outputs", []):
            content = output.get("data") or output.get("text") or output.get("traceback") or ""
            name = f"an output of cell {number}"
            if figure := output.get("data", {}).get(PLOTLY):
                caption = figure_view(figure).title
                name = f"the figure “{caption}”" if caption else f"the figure of cell {number}"
            sizes.append((len(json.dumps(content, ensure_ascii=False).encode()), name))
    largest = ", ".join(f"{name} ({_megabytes(own)})" for own, name in sorted(sizes, reverse=True)[:NAMED])
    return (
        f"This report has {_megabytes(size)}, more than the {MAX_MB} MB that a mail takes; "
        f"draw fewer points or print less. Largest: {largest or 'its text'}."
    )


def _megabytes(size: int) -> str:
    return f"{size / MEGABYTE:.1f} MB"
