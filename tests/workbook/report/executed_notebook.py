"""Small executed notebooks, made by hand so that a test of the report needs no kernel."""

import json
from pathlib import Path
from typing import Any

import nbformat
import plotly.graph_objects as go
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

PLOTLY = "application/vnd.plotly.v1+json"


def shown(**forms: Any) -> nbformat.NotebookNode:
    """A display output; `html`, `plain`, `plotly`, `widget`, `latex`, `png` name its forms."""
    types = {
        "html": "text/html",
        "plain": "text/plain",
        "latex": "text/latex",
        "png": "image/png",
        "plotly": PLOTLY,
        "widget": "application/vnd.jupyter.widget-view+json",
    }
    return new_output("display_data", data={types[form]: content for form, content in forms.items()})


def figure(title: str = "A figure", **layout: Any) -> nbformat.NotebookNode:
    """A display output with one bar chart."""
    drawn = go.Figure(go.Bar(x=["a", "b"], y=[1, 2]), layout={"title": title, **layout})
    return shown(plotly=json.loads(drawn.to_json()), plain="Figure()")


def printed(text: str, name: str = "stdout") -> nbformat.NotebookNode:
    """A stream output."""
    return new_output("stream", name=name, text=text)


def raised(name: str, value: str) -> nbformat.NotebookNode:
    """An error output with a coloured traceback."""
    return new_output("error", ename=name, evalue=value, traceback=[f"\x1b[31m{name}\x1b[39m: {value}"])


def code(source: str, *outputs: nbformat.NotebookNode, tag: str | None = None) -> nbformat.NotebookNode:
    """A code cell that was executed."""
    return new_code_cell(source, outputs=list(outputs), metadata={"tags": [tag]} if tag else {})


def save(folder: Path, *cells: nbformat.NotebookNode | str) -> Path:
    """FOLDER/executed.ipynb with these cells; a text is a markdown cell."""
    path = folder / "executed.ipynb"
    made = [new_markdown_cell(cell) if isinstance(cell, str) else cell for cell in cells]
    metadata = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}}
    nbformat.write(new_notebook(cells=made, metadata=metadata), path)
    return path
