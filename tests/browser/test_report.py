"""The report in a browser without a network: figures are drawn, nothing is asked for, a phone shows it whole."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import plotly.graph_objects as go
import pytest
from ddtree.workbook.report.export import export
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
CHROMEDRIVER = shutil.which("chromedriver")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and CHROMEDRIVER), reason="chromium and chromedriver are not installed"),
]

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
FIGURES = 2


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a notebook with two figures, a wide table, a long formula, long code and a remote picture."""
    folder = tmp_path_factory.mktemp("report")
    wide = f"<table class='dataframe'><tr>{'<td>a long entry</td>' * 20}</tr></table>"
    tree = go.Figure(go.Scatter(x=[0, 1], y=[0, 1], mode="markers", marker={"color": "#222"}))
    tree.update_layout(title="A title that is far too long for one line of a telephone", width=1100)
    line = go.Figure(go.Bar(x=["a", "b"], y=[1, 2], name="bars"), layout={"showlegend": True})
    cells = [
        new_markdown_cell("# Report\n\n![pic](https://pictures.example/a.png)\n\n$$" + "a + " * 60 + "b$$"),
        new_code_cell("x = " + "1 + " * 80 + "1", outputs=[_shown("text/html", wide)]),
        new_code_cell("tree", outputs=[_shown("application/vnd.plotly.v1+json", json.loads(tree.to_json()))]),
        new_code_cell("line", outputs=[_shown("application/vnd.plotly.v1+json", json.loads(line.to_json()))]),
        new_code_cell("print()", outputs=[new_output("stream", name="stdout", text="y" * 300)]),
    ]
    nbformat.write(new_notebook(cells=cells), folder / "executed.ipynb")
    return export(folder / "executed.ipynb", folder / "report.html")


def _shown(form: str, content: Any) -> nbformat.NotebookNode:
    return new_output("display_data", data={form: content})


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in [*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(CHROMEDRIVER))
    driver.execute_cdp_cmd("Network.enable", {})
    offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    yield driver
    driver.quit()


def view(driver: webdriver.Chrome, report: Path, *, width: int, scheme: str = "light") -> None:
    """Open the report at `width` pixels, as a phone below 600, and wait until every figure is drawn."""
    phone = width < 600
    metrics = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": phone}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": phone})
    scheme_feature = {"name": "prefers-color-scheme", "value": scheme}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme_feature]})
    driver.get(report.as_uri())
    WebDriverWait(driver, 20).until(lambda it: drawn(it) == FIGURES)


def drawn(driver: webdriver.Chrome) -> int:
    script = "return [...document.querySelectorAll('.js-plotly-plot')].filter(f => f.querySelector('.main-svg')).length"
    return int(driver.execute_script(script))


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("unfolded", [False, True])
def test_page_is_whole_offline(browser: webdriver.Chrome, report: Path, width: int, unfolded: bool) -> None:
    browser.get_log("performance")
    view(browser, report, width=width)
    if unfolded:
        browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true })")
    needed, given = browser.execute_script("const e = document.documentElement; return [e.scrollWidth, e.clientWidth]")
    assert needed == given <= width  # a phone's page grows with its content, so both matter
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert report.as_uri() in asked
    assert [address for address in asked if not address.startswith(("file:", "data:", "blob:"))] == []
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_figures_take_the_colours_of_the_page(browser: webdriver.Chrome, report: Path) -> None:
    ink = "return getComputedStyle(document.querySelector('.xtick text')).fill"
    marker = "return getComputedStyle(document.querySelector('.scatterlayer .point')).fill"
    paper = "return getComputedStyle(document.body).backgroundColor"
    light: list[float] = []
    dark: list[float] = []
    for scheme, found in (("light", light), ("dark", dark)):
        view(browser, report, width=1200, scheme=scheme)
        found.extend(luminance(browser.execute_script(script)) for script in (ink, marker, paper))
    assert light[0] < 0.3 < 0.9 < light[2]
    assert light[1] < 0.3
    assert dark[2] < 0.15 < 0.7 < dark[0]
    assert dark[1] > 0.7


def test_open_page_follows_a_change_of_scheme(browser: webdriver.Chrome, report: Path) -> None:
    view(browser, report, width=1200)
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    ink = "return getComputedStyle(document.querySelector('.xtick text')).fill"
    WebDriverWait(browser, 10).until(lambda it: luminance(it.execute_script(ink)) > 0.7)


def test_button_unfolds_and_folds_all_code(browser: webdriver.Chrome, report: Path) -> None:
    view(browser, report, width=1200)
    unfolded = "return document.querySelectorAll('details.code[open]').length"
    assert browser.execute_script(unfolded) == 0
    browser.execute_script("document.getElementById('all-code').click()")
    assert browser.execute_script(unfolded) == 4
    browser.execute_script("document.getElementById('all-code').click()")
    assert browser.execute_script(unfolded) == 0


def luminance(colour: str) -> float:
    """Mean channel, 0 to 1, of a computed "rgb(r, g, b)"."""
    channels = colour.partition("(")[2].rstrip(")").split(",")[:3]
    return sum(float(channel) for channel in channels) / 3 / 255
