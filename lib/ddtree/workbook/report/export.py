"""An executed notebook as ONE HTML file that asks nothing of the network: prose and figures first, code on demand."""

import base64
import sys
from html import escape
from pathlib import Path
from typing import Any

import nbformat
from jinja2 import pass_context
from markupsafe import Markup
from nbconvert.exporters import HTMLExporter
from nbformat import NotebookNode
from plotly.offline import get_plotlyjs
from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]
from traitlets.config import Config

from ddtree.workbook.records import write_text
from ddtree.workbook.report.facts import run_facts
from ddtree.workbook.report.figures import PLOTLY, figure_view
from ddtree.workbook.report.markdown import OfflineMarkdown, latex_output
from ddtree.workbook.report.offline import CONTENT_SECURITY_POLICY, without_requests
from ddtree.workbook.report.outline import body_cells, has_figures
from ddtree.workbook.report.weight import too_heavy

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
