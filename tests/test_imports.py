"""Imports go one way: the algorithm in the order in which data flows, models after it, the workbook on top of all."""

import ast
import sys
from collections import Counter
from importlib.metadata import packages_distributions
from pathlib import Path

import ddtree
from ddtree.workbook.doctor.packages import read_pins
from ddtree.workbook.paths import project_root
from packaging.utils import canonicalize_name

PACKAGE = Path(ddtree.__file__).parent
# A module may import those of an earlier line, and of its own line only within a package.
ORDER = [
    {"kernels"},
    {"topk"},
    {"tree"},
    {"retrieve"},
    {"sampling"},
    {"backends"},
    {"verify"},
    {"commit"},
    {"protocols"},
    {"decode"},
    {"adaptive_budget"},
    {"models"},
    {"serving"},
    {"workbook"},
]
SAME_IN_EACH_NOTEBOOK = {"__init__", "plots", "measure", "record", "summary", "tables", "view"}
MOST_FILES = 125
NOT_DECLARED = {"sgl_kernel": "sglang-kernel", "triton": "torch", "sglang": "sglang"}  # extras, or part of torch


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PATHS = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported(source: str) -> set[str]:
    """Full names under `ddtree`, of modules or of what is in them, that a source imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "ddtree":
            names |= {f"{node.module}.{alias.name}".removeprefix("ddtree.") for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name.removeprefix("ddtree.") for alias in node.names if alias.name.startswith("ddtree.")}
    return names


def modules_imported(name: str) -> set[str]:
    found = set()
    for full in imported(PATHS[name].read_text(encoding="utf-8")):
        found.add(full if full in PATHS else full.rpartition(".")[0])
    return found - {name, ""}


IMPORTS = {name: modules_imported(name) for name in PATHS}


def place_of(name: str) -> int:
    top = name.split(".")[0]
    return next(number for number, line in enumerate(ORDER) if top in line)


def circle(graph: dict[str, set[str]]) -> list[str]:
    """The nodes of the graph that lie on a circle or lead to one; empty where there is none."""
    left = {name: set(targets) for name, targets in graph.items()}
    while free := [name for name, targets in left.items() if not targets & left.keys()]:
        for name in free:
            del left[name]
    return sorted(left)


def test_every_module_has_its_place_and_imports_what_comes_before_it() -> None:
    assert {name.split(".")[0] for name in PATHS} - {""} == set().union(*ORDER)
    wrong = {
        name: sorted(later)
        for name in PATHS.keys() - {""}
        if (
            later := {
                other
                for other in IMPORTS[name]
                if place_of(other) > place_of(name)
                or (place_of(other) == place_of(name) and other.split(".")[0] != name.split(".")[0])
            }
        )
    }
    assert not wrong
    assert IMPORTS[""] == set()


def test_no_circle_of_files() -> None:
    assert circle(IMPORTS) == []


def test_no_circle_of_packages() -> None:
    """Of packages next to each other: files of a package may share those of the one above, which uses the package."""
    packages = {name for name, path in PATHS.items() if path.name == "__init__.py"} - {""}

    def package_of(name: str) -> str:
        return name if name in packages else name.rpartition(".")[0]

    graph: dict[str, set[str]] = {name: set() for name in packages}
    for name, targets in IMPORTS.items():
        here = package_of(name)
        for target in targets:
            there = package_of(target)
            if here and there and not f"{here}.".startswith(f"{there}.") and not f"{there}.".startswith(f"{here}."):
                graph[here].add(there)
    assert circle(graph) == []


def test_a_file_is_found_by_its_name() -> None:
    assert len(PATHS) <= MOST_FILES
    counts = Counter(path.stem for path in PATHS.values())
    assert {stem for stem, count in counts.items() if count > 1} <= SAME_IN_EACH_NOTEBOOK


def test_every_library_that_is_imported_is_declared() -> None:
    pins = read_pins(project_root() / "pyproject.toml")
    declared = {canonicalize_name(line.name) for line in pins.always}
    declared |= {canonicalize_name(line.name) for lines in pins.extras.values() for line in lines}
    distributions = packages_distributions()
    missing = {}
    for path in PATHS.values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else modules
            for top in {(module or "").split(".")[0] for module in modules} - set(sys.stdlib_module_names):
                if top in ("ddtree", *NOT_DECLARED):
                    continue
                if not {canonicalize_name(name) for name in distributions.get(top, [top])} & declared:
                    missing[top] = path.name
    assert not missing


def test_an_import_is_seen_in_every_form() -> None:
    forms = "import ddtree.models.zoo\nfrom ddtree import tree\ndef f():\n    from ddtree.workbook.runner import x\n"
    assert imported(forms + "import torch\nfrom ddtreex import a\n") == {"models.zoo", "tree", "workbook.runner.x"}


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert circle({"a": {"b"}, "b": {"a"}, "c": {"a"}}) == ["a", "b", "c"]
