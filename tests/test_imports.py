"""Imports go one way: the algorithm in the order in which data flows, models after it, the workbook on top of all."""

import ast
from pathlib import Path

import ddtree
from loops import for_each

PACKAGE = Path(ddtree.__file__).parent
# A module may import those of an earlier line, and of its own line only if it is a room.
ORDER = [
    {"kernels"},
    {"draft_tree"},
    {"likeliest", "prefixes"},
    {"tree"},
    {"clock", "rest", "retrieve"},
    {"budget"},
    {"sampling"},
    {"backends"},
    {"verify"},
    {"commit"},
    {"interfaces"},
    {"decode"},
    {"models"},
    {"serving"},
    {"workbook"},
]
ROOMS = {"kernels", "backends", "models", "serving", "workbook"}
MODULES = sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(source: str) -> set[str]:
    """First names under `ddtree` that a module imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "ddtree":
            parts = node.module.split(".")
            names |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("ddtree.")}
    return names


def line_of(name: str) -> int:
    return next(number for number, line in enumerate(ORDER) if name in line)


def test_every_module_has_its_place() -> None:
    placed = set().union(*ORDER)
    assert {room_of(path) for path in MODULES} - {"__init__"} <= placed


@for_each("path", MODULES)
def test_a_module_imports_what_comes_before_it(path: Path) -> None:
    room = room_of(path)
    if room == "__init__":
        assert imported(path.read_text(encoding="utf-8")) == set()
        return
    later = {name for name in imported(path.read_text(encoding="utf-8")) if line_of(name) >= line_of(room)}
    assert later <= ({room} if room in ROOMS else set())


def test_an_import_is_seen_in_every_form() -> None:
    forms = "import ddtree.models.zoo\nfrom ddtree import tree\ndef f():\n    from ddtree.workbook.run import x\n"
    assert imported(forms + "import torch\nfrom ddtreex import a\n") == {"models", "tree", "workbook"}
