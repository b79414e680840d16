"""The report in a browser without a network: figures are drawn, nothing is asked for, phone and paper show it whole."""

import json
import re
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat
import plotly.graph_objects as go
import pytest
from ddtree.workbook.params import TreeParams
from ddtree.workbook.records import write_run
from ddtree.workbook.report.html import export
from ddtree.workbook.report.pdf import print_pdf
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from offline_browser import (
    CHROMIUM,
    NEEDS_BROWSER,
    assert_asked_for_nothing,
    assert_no_sideways_scroll,
    luminance,
    offline_driver,
    open_page,
    prefer,
)
from selenium import webdriver
from selenium.webdriver.support.wait import WebDriverWait

pytestmark = NEEDS_BROWSER

FIGURES = 2
INK = "return getComputedStyle(document.querySelector('.xtick text')).fill"
MARKER = "return getComputedStyle(document.querySelector('.scatterlayer .point')).fill"
PAPER = "return getComputedStyle(document.body).backgroundColor"
WIDTHS = "return [...document.querySelectorAll('.main-svg')].map(f => f.getBoundingClientRect().width)"
HEIGHTS = "return [...document.querySelectorAll('.canvas')].map(c => c.getBoundingClientRect().height)"
OPEN = "return [...document.querySelectorAll('details')].map(d => d.open)"
PAPER_WIDTH = 688  # pixels of A4 between margins of 14 mm


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a notebook with two figures, a wide table, a long formula, long code and a remote picture."""
    folder = tmp_path_factory.mktemp("report")
    wide = f"<table class='dataframe'><tr>{'<td>a long entry</td>' * 20}</tr></table>"
    tree = go.Figure(go.Scatter(x=[0, 1], y=[0, 1], mode="markers", marker={"color": "#222"}))
    tree.update_layout(title="A title that is far too long for one line of a telephone", width=1100, height=2000)
    line = go.Figure(go.Bar(x=["a", "b"], y=[1, 2], name="bars"), layout={"showlegend": True})
    line.update_traces(marker_color="#ff00ff")
    cells = [
        new_markdown_cell("# Report\n\n![pic](https://pictures.example/a.png)\n\n$$" + "a + " * 60 + "b$$"),
        new_code_cell("x = " + "1 + " * 80 + "1", outputs=[_shown("text/html", wide)]),
        new_code_cell("tree", outputs=[_shown("application/vnd.plotly.v1+json", json.loads(tree.to_json()))]),
        new_code_cell("line", outputs=[_shown("application/vnd.plotly.v1+json", json.loads(line.to_json()))]),
        new_code_cell("print()", outputs=[new_output("stream", name="stdout", text="y" * 300)]),
    ]
    nbformat.write(new_notebook(cells=cells), folder / "executed.ipynb")
    write_run(
        folder,
        notebook="01_tree",
        params=TreeParams(model="small", prompt="word " * 40),
        started_utc=datetime.now(UTC),
    )
    return export(folder / "executed.ipynb", folder / "report.html")


def _shown(form: str, content: Any) -> nbformat.NotebookNode:
    return new_output("display_data", data={form: content})


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    yield from offline_driver()


def view(driver: webdriver.Chrome, report: Path, *, width: int, scheme: str = "light") -> None:
    """Open the report and wait until every figure is drawn."""
    open_page(driver, report, width=width, scheme=scheme)
    WebDriverWait(driver, 20).until(lambda it: drawn(it) == FIGURES)


def drawn(driver: webdriver.Chrome) -> int:
    script = "return [...document.querySelectorAll('.js-plotly-plot')].filter(f => f.querySelector('.main-svg')).length"
    return int(driver.execute_script(script))


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1200, "light")])
def test_page_is_whole_offline(browser: webdriver.Chrome, report: Path, width: int, scheme: str) -> None:
    browser.get_log("performance")
    view(browser, report, width=width, scheme=scheme)
    assert_no_sideways_scroll(browser, width)
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert_no_sideways_scroll(browser, width)
    assert_asked_for_nothing(browser, report)
    assert (luminance(browser.execute_script(PAPER)) > 0.9) == (scheme == "light")


def test_figures_take_the_colours_of_the_page_and_follow_them(browser: webdriver.Chrome, report: Path) -> None:
    view(browser, report, width=1200, scheme="dark")
    ink, marker, paper = (luminance(browser.execute_script(script)) for script in (INK, MARKER, PAPER))
    assert paper < 0.15 < 0.7 < ink
    assert marker > 0.7
    prefer(browser, "light")
    WebDriverWait(browser, 10).until(lambda it: luminance(it.execute_script(INK)) < 0.3)
    marker, paper = (luminance(browser.execute_script(script)) for script in (MARKER, PAPER))
    assert marker < 0.3 < 0.9 < paper


def test_paper_gets_light_figures_of_its_width_and_the_screen_its_own_back(
    browser: webdriver.Chrome, report: Path
) -> None:
    view(browser, report, width=1200, scheme="dark")
    before = browser.execute_script(WIDTHS)
    assert max(before) > PAPER_WIDTH
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert max(browser.execute_script(WIDTHS)) <= PAPER_WIDTH
    # A4 is 1017 pixels high between its margins, and the caption needs some.
    assert browser.execute_script(HEIGHTS) == pytest.approx([940, 450], abs=1)
    assert luminance(browser.execute_script(INK)) < 0.3
    assert luminance(browser.execute_script(PAPER)) > 0.9
    assert browser.execute_script(OPEN) == [*[False] * 4, True, True]  # parameters and machine, moved to the end
    browser.execute_script("dispatchEvent(new Event('afterprint'))")
    assert browser.execute_script(WIDTHS) == before
    assert luminance(browser.execute_script(INK)) > 0.7
    assert browser.execute_script(OPEN) == [False] * 6
    assert browser.execute_script("return document.querySelectorAll('header .drawers').length") == 1


def test_button_unfolds_and_folds_all_code(browser: webdriver.Chrome, report: Path) -> None:
    view(browser, report, width=1200)
    unfolded = "return document.querySelectorAll('details.code[open]').length"
    assert browser.execute_script(unfolded) == 0
    browser.execute_script("document.getElementById('all-code').click()")
    assert browser.execute_script(unfolded) == 4
    browser.execute_script("document.getElementById('all-code').click()")
    assert browser.execute_script(unfolded) == 0


def test_pdf_holds_the_figures(report: Path) -> None:
    content = print_pdf(report, report.with_suffix(".pdf"), str(CHROMIUM)).read_bytes()
    assert content.startswith(b"%PDF-")
    assert set(re.findall(rb"/MediaBox \[[^]]*\]", content)) == {b"/MediaBox [0 0 594.95996 841.91998]"}  # A4
    assert 2 <= len(re.findall(rb"/Type /Page\b", content)) <= 6
    drawing = b"".join(_inflated(found) for found in re.findall(rb"stream\r?\n(.*?)endstream", content, re.DOTALL))
    assert drawing.count(b" 1 0 1 rg") >= 2  # each bar is filled magenta


def _inflated(stream: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(stream)
    except zlib.error:  # a stream that is not compressed
        return stream
