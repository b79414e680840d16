"""Tables as a reader sees them: no index, few digits, intervals beside values, blanks for what is missing."""

import pandas as pd
from bs4 import BeautifulSoup
from ddtree.workbook.tables import facts, plain, regression_table, summary_table
from pandas.io.formats.style import Styler


def cells(table: Styler) -> list[list[str]]:
    """The text of each row, the heading first."""
    page = BeautifulSoup(table.to_html(), "html.parser")
    assert "dataframe" in page.table["class"], "the class that the report dresses"
    return [[cell.get_text().strip() for cell in row.find_all(["th", "td"])] for row in page.find_all("tr")]


def test_plain_table() -> None:
    frame = pd.DataFrame(
        {
            "n": pd.array([1, None], dtype="Int64"),
            "x": [0.12345, float("nan")],
            "text": ["a <b>", None],
            "list": [[1, 2], [3]],
        }
    )
    assert cells(plain(frame.drop(columns="text"))) == [["n", "x", "list"], ["1", "0.123", "[1, 2]"], ["", "", "[3]"]]
    assert cells(plain(frame[["x"]], digits=4)) == [["x"], ["0.1235"], [""]]
    assert cells(plain(frame[["text"]]))[2] == [""]


def test_facts() -> None:
    assert cells(facts({"model": "tiny", "packed": True, "block_size": 8}))[1:] == [
        ["model", "tiny"],
        ["packed", "True"],
        ["block_size", "8"],
    ]


def test_summary_table() -> None:
    row = {"temperature": 0.6, "label": "tree 16/4", "overhead_share": 0.0846, "rounds": 31, "tokens": 64}
    for name, found in (("tokens_per_s", (41.26, 39.9, 43)), ("speedup", (1.5, 1.425, 1.6)), ("acceptance", (2, 1, 3))):
        row |= dict(zip((name, f"{name}_lo", f"{name}_hi"), found, strict=True))
    other = row | {"temperature": 1.0, "label": "chain", "overhead_share": 0.5}
    assert cells(summary_table(pd.DataFrame([row, other]))) == [
        ["T", "strategy", "tokens/s", "speed-up", "tokens per round", "overhead", "rounds"],
        ["0.6", "tree 16/4", "41.3 (39.9 to 43.0)", "1.50 (1.43 to 1.60)", "2.00 (1.00 to 3.00)", "8.5%", "31"],
        ["1", "chain", "41.3 (39.9 to 43.0)", "1.50 (1.43 to 1.60)", "2.00 (1.00 to 3.00)", "50.0%", "31"],
    ]


def regression(*differences: tuple[int | None, float | None]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "prompt": prompt,
                "strategy": "tree",
                "tokens": 24,
                "equal": where is None,
                "first_difference": where,
                "gap_ulp": gap,
            }
            for prompt, (where, gap) in enumerate(differences)
        ]
    )


def test_regression_table_names_the_first_difference() -> None:
    assert cells(regression_table(regression((None, None), (13, 1.96), (0, None)))) == [
        ["prompt", "strategy", "tokens", "greedy text", "first difference", "logit gap there"],
        ["0", "tree", "24", "equal", "–", "–"],
        ["1", "tree", "24", "differs", "token 13", "2.0 ulp"],
        ["2", "tree", "24", "differs", "token 0", "–"],
    ]


def test_regression_table_of_equal_texts() -> None:
    assert cells(regression_table(regression((None, None))))[1] == ["0", "tree", "24", "equal", "–", "–"]


def test_regression_table_of_nothing_compared() -> None:
    nothing = pd.DataFrame(columns=regression((None, None)).columns)
    assert len(cells(regression_table(nothing))) == 1
