"""The index in a browser without a network: it sorts, filters, and shows a phone every run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ddtree.workbook.report.index import ListedRun, render_index
from ddtree.workbook.report.key_metrics import KeyMetrics
from offline_browser import (
    NEEDS_BROWSER,
    assert_asked_for_nothing,
    assert_no_sideways_scroll,
    luminance,
    offline_driver,
    open_page,
)
from selenium import webdriver

pytestmark = NEEDS_BROWSER

ORDER = "return [...document.querySelectorAll('tbody tr:not([hidden]) td:first-child')].map(c => c.textContent.trim())"
CLICK = "[...document.querySelectorAll('th button')].find(b => b.textContent === arguments[0]).click()"
TYPE = """const field = document.querySelector('input');
field.value = arguments[0];
field.dispatchEvent(new Event('input', { bubbles: true }))"""
SHOWN = "return [...document.querySelectorAll(arguments[0])].map(e => e.checkVisibility())"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four runs: two measured, one failed with a long reason, one unreadable."""
    path = tmp_path_factory.mktemp("index") / "index.html"
    measured: dict[str, Any] = {"notebook": "03_live", "title": "Live: a title of some length", "machine": "CPU"}
    runs = [
        ListedRun(
            "sweeps/slow",
            "done",
            "",
            params={"budget": 9},
            key_metrics=KeyMetrics(("1.2×",), 1.2),
            wall_s=100,
            **measured,
        ),
        ListedRun(
            "sweeps/fast",
            "done",
            "",
            params={"budget": 16},
            key_metrics=KeyMetrics(("10.5×",), 10.5),
            wall_s=20,
            report="sweeps/fast/report.html",
            **measured,
        ),
        ListedRun("sweeps/hot", "failed", "OutOfMemory: " + "long" * 60, params={"budget": "auto"}, **measured),
        ListedRun("torn" * 30, "unreadable", "result.json is not valid JSON: " + "x" * 200),
    ]
    path.write_text(render_index("outputs", runs), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    yield from offline_driver()


def order(driver: webdriver.Chrome) -> list[str]:
    """The runs that are shown, from top to bottom, by the last part of their folder in four letters."""
    return [name.rpartition("/")[2][:4] for name in driver.execute_script(ORDER)]


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_is_whole_offline(browser: webdriver.Chrome, index: Path, width: int, scheme: str) -> None:
    browser.get_log("performance")
    open_page(browser, index, width=width, scheme=scheme)
    assert_no_sideways_scroll(browser, width)
    assert_asked_for_nothing(browser, index)
    paper = luminance(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
    ink = luminance(browser.execute_script("return getComputedStyle(document.querySelector('td .line')).color"))
    assert (paper > 0.9 and ink < 0.4) if scheme == "light" else (paper < 0.15 and ink > 0.6)


def test_columns_sort_as_numbers_and_what_is_missing_stays_last(browser: webdriver.Chrome, index: Path) -> None:
    open_page(browser, index, width=1200)
    assert order(browser) == ["slow", "fast", "hot", "torn"]
    for column, wanted in (
        ("result", ["fast", "slow", "hot", "torn"]),  # the best first
        ("result", ["slow", "fast", "hot", "torn"]),
        ("budget", ["slow", "fast", "hot", "torn"]),  # 9, 16, auto
        ("budget", ["hot", "fast", "slow", "torn"]),
        ("wall time", ["slow", "fast", "hot", "torn"]),
        ("run", ["fast", "hot", "slow", "torn"]),
    ):
        browser.execute_script(CLICK, column)
        assert order(browser) == wanted, column
    marked = "return [...document.querySelectorAll('th[aria-sort]')].map(h => [h.textContent, h.ariaSort])"
    assert browser.execute_script(marked) == [["run", "ascending"]]


def test_filter_keeps_runs_that_hold_every_word(browser: webdriver.Chrome, index: Path) -> None:
    open_page(browser, index, width=1200)
    for words, wanted, count in (
        ("sweeps done", ["slow", "fast"], "2 of 4"),
        ("SWEEPS 16", ["fast"], "1 of 4"),
        ("nowhere", [], "0 of 4"),
        (" ", ["slow", "fast", "hot", "torn"], ""),
    ):
        browser.execute_script(TYPE, words)
        assert order(browser) == wanted, words
        assert browser.execute_script("return document.querySelector('output').textContent") == count


def test_phone_shows_a_card_for_each_run_and_sorts_from_a_menu(browser: webdriver.Chrome, index: Path) -> None:
    open_page(browser, index, width=390)
    assert set(browser.execute_script(SHOWN, "thead")) == {False}
    assert browser.execute_script(SHOWN, "td[data-name=status]") == [True] * 4
    assert browser.execute_script(SHOWN, "td[data-name=result]") == [True, True, False, False]
    assert browser.execute_script(SHOWN, ".sort select") == [True]
    browser.execute_script(
        "const s = document.querySelector('select'); s.selectedIndex = 3; s.dispatchEvent(new Event('change'))"
    )
    assert order(browser) == ["fast", "slow", "hot", "torn"]


def test_link_leads_to_the_report_beside_the_index(browser: webdriver.Chrome, index: Path) -> None:
    open_page(browser, index, width=1200)
    links = browser.execute_script("return [...document.querySelectorAll('td a')].map(a => a.href)")
    assert links == [(index.parent / "sweeps/fast/report.html").as_uri()]
