"""Tables of a suite: the weakest setting of each line, and controls that say whether they were rejected."""

import re

import pandas as pd
from ddtree.workbook.exactness.suite import SuiteResult
from ddtree.workbook.exactness.tables import distributions_table, negative_controls_table


def row(rule: str, law: str, tree: str, p: float, tv: float, found: float, draws: int = 1000) -> dict[str, object]:
    return {
        "rule": rule,
        "temperature": 0.3,
        "filter": "none",
        "tree": tree,
        "law": law,
        "draws": draws,
        "cells": 4,
        "statistic": 1.0,
        "df": 3,
        "p": p,
        "tv": tv,
        "tv_lo": tv / 2,
        "tv_hi": 2 * tv,
        "smallest_found": found,
        "impossible": 0,
        "p_holm": min(1.0, 4 * p),
        "rejected": 4 * p < 0.01,
    }


RESULT = SuiteResult(
    tests=pd.DataFrame(
        [
            row("target-only", "first token", "chain", 0.2, 0.01, 0.05),
            row("target-only", "first token", "tree 16/4", 0.1, 0.004, 0.06, draws=800),
            row("siblings counted twice", "first token", "tree 16/4", 0.0, 0.5, 0.05),
            row("siblings counted twice", "drafts accepted", "tree 16/4", 0.5, 0.01, 0.05),
            row("one coin for both draws", "first token", "tree 16/4", 0.3, 0.02, 0.05),
        ]
    ),
    cells=pd.DataFrame(),
    replayed=0,
    differing=0,
)


def texts(html: str) -> list[str]:
    return [re.sub(r"\s+", " ", cell).strip() for cell in re.findall(r"<td[^>]*>(.*?)</td>", html, re.S)]


def test_a_line_is_the_weakest_of_its_settings() -> None:
    found = texts(distributions_table(RESULT).to_html())
    assert found == [
        *("first token", "0.3", "2", "800 to 1,000", "4", "0.100", "0.400"),
        *("0.0100 (0.0050 to 0.0200)", "0.0600"),
    ]


def test_a_control_is_its_strongest_test_and_one_that_passes_is_named_in_capitals() -> None:
    found = texts(negative_controls_table(RESULT).to_html())
    passed, caught = found[:7], found[7:]
    assert passed[0] == "one coin for both draws"
    assert passed[-1] == "NOT rejected"
    assert caught == [
        *("siblings counted twice", "first token", "1,000", "0", "0", "0.5000 (0.2500 to 1.0000)", "rejected")
    ]
