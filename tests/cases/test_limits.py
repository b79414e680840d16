"""docs/limits.md names every case, and no test that does not exist."""

import re

from ddtree.workbook.paths import project_root
from loops import for_each

TEXT = (project_root() / "docs" / "limits.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| ([A-D]\d\d) \| (.*) \|$", TEXT, re.MULTILINE))
CASES = [
    f"{part}{number:02}" for part, count in {"A": 30, "B": 7, "C": 12, "D": 5}.items() for number in range(1, count + 1)
]


def test_every_case_has_a_row() -> None:
    assert list(ROWS) == CASES


@for_each("case", CASES)
def test_tests_named_exist(case: str) -> None:
    tests = re.findall(r"`([\w/]+\.py)::(\w+)`", ROWS[case])
    assert tests
    for file, name in tests:
        source = (project_root() / "tests" / file).read_text(encoding="utf-8")
        assert re.search(rf"^(def|class) {name}\b", source, re.MULTILINE), f"{file}::{name}"
