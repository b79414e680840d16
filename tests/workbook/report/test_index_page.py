"""The index is one small page: a row for every run, columns for what differs, nothing fetched, nothing injected."""

from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from ddtree.workbook.report.index import ListedRun, NoRunsError, differing, write_index
from run_folders import record, setting, write_notebook, write_record
from wording import names, tells


def run(notebook: str, **params: object) -> ListedRun:
    return ListedRun("x", "done", "", notebook=notebook, params=params)


def table(path: Path) -> list[dict[str, str]]:
    """Each row of the page as column name to text, lines joined by " | "."""
    soup = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
    return [
        {str(cell["data-name"]): cell.get_text(" | ", strip=True) for cell in row.select("td")}
        for row in soup.select("tbody tr")
    ]


def test_row_holds_what_a_reader_compares(tmp_path: Path) -> None:
    metrics = {"summary": [setting(0.6, "tree 16/4", 1.5, 2.5)]}
    write_record(tmp_path / "one", record(metrics=metrics))
    other = record(metrics=metrics, params={"model": "small", "budget": 32, "out_dir": "outputs/y"})
    folder = write_record(write_notebook(tmp_path / "two %"), other)
    (folder / "report.html").write_text("")
    path = write_index(tmp_path)
    assert path == tmp_path / "index.html"
    first, second = table(path)
    assert first == {
        "run": "one",
        "notebook": "03_live",
        "status": "done",
        "result": "T=0.6: 1.50× (1.40 to 1.60) tree 16/4",
        "tokens per round": "T=0.6: 2.50",
        "budget": "16",
        "model": "small",
        "when": "2026-03-01 | 10:00 UTC",
        "wall time": "1 min 15 s",
        "machine": "Some CPU, 2 cores",
    }
    assert (second["budget"], second["notebook"]) == ("32", "03_live | Live")
    soup = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
    assert [link["href"] for link in soup.select("td a")] == ["two%20%25/report.html"]


def test_columns_are_what_differs_within_a_notebook() -> None:
    runs = [
        run("01_tree", budget=16, temperature=0.5),
        run("01_tree", budget=16, temperature=0.6, seed=1),
        run("03_live", budget=32, topk_cap=4, model="a", out_dir="a"),
        run("03_live", budget=32, topk_cap=8, model="b", out_dir="b"),
    ]
    assert differing(runs) == ["temperature", "topk_cap"]


def test_columns_stand_in_the_order_of_the_parameters() -> None:
    assert differing([run("03_live", zeal=1, budget=1, top_p=0.5), run("03_live", zeal=2, budget=2, top_p=1.0)]) == [
        "top_p",
        "budget",
        "zeal",
    ]


def test_long_parameters_are_short_and_numbers_sort_as_numbers(tmp_path: Path) -> None:
    for name, prompts, temperatures in (("a", ["x" * 99], [0.6]), ("b", ["y", "z"], [0.0, 1.0])):
        params = {"prompts": prompts, "temperatures": temperatures}
        write_record(tmp_path / name, record(params=params))
    path = write_index(tmp_path)
    assert [row["prompts"] for row in table(path)] == ["1 text", "2 texts"]
    soup = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
    assert [cell["data-sort"] for cell in soup.select("td[data-name=temperatures]")] == ["0.6", "0.0, 1.0"]


def test_states_are_counted_and_unreadable_ones_have_their_reason(tmp_path: Path) -> None:
    write_record(tmp_path / "a", record())
    write_record(tmp_path / "b", ["foreign"])
    path = write_index(tmp_path)
    soup = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
    assert [found.get_text(" ", strip=True) for found in soup.select(".facts-line li")] == [
        "2 runs",
        "1 done",
        "1 unreadable",
    ]
    assert tells(table(path)[1]["status"], "unreadable result.json schema None 1")


def test_page_is_small_and_no_text_of_a_run_becomes_markup(tmp_path: Path) -> None:
    evil = '<script src="https://x.example/a.js"></script><img src=x onerror=alert(1)>'
    write_record(tmp_path / "<b>a</b>", record(params={"model": evil}))
    write_notebook(tmp_path / "b", error=evil)
    path = write_index(tmp_path)
    soup = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
    assert soup.select("[src], img, td b, link[rel=stylesheet]") == []
    assert len(soup.select("script")) == 1
    assert "default-src 'none'" in str(soup.select_one("meta[http-equiv]"))
    assert path.stat().st_size < 60_000


def test_hundred_runs_stay_far_below_the_limit(tmp_path: Path) -> None:
    for number in range(100):
        params = {"model": "small", "budget": number, "seed": number, "topk_cap": 4}
        write_record(tmp_path / f"{number}", record(params=params))
    path = write_index(tmp_path)
    assert len(table(path)) == 100
    assert path.stat().st_size < 500_000


def test_folder_without_runs_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoRunsError, match=names("executed.ipynb")):
        write_index(tmp_path)
    with pytest.raises(NoRunsError, match=names("absent")):
        write_index(tmp_path / "absent")
