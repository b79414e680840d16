"""Every link and every path that the documents name leads somewhere: files, headings, tests, commands of make."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import mistune
import nbformat
import pytest
from ddtree.workbook.paths import project_root

ROOT = project_root()
DOCUMENTS = sorted(
    [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + [*ROOT.glob("docs/*.md")]
)
PLACES = ("lib", "tests", "notebooks", "params", "docs", "profiles")
parse = mistune.create_markdown(renderer="ast", plugins=["table", "strikethrough"])


@cache
def tokens(document: Path) -> list[dict[str, Any]]:
    return list(nodes(parse(document.read_text(encoding="utf-8"))))


def nodes(tree: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for node in tree:
        yield node
        yield from nodes(node.get("children", []))


def text_of(node: dict[str, Any]) -> str:
    return str(node.get("raw", "")) + "".join(text_of(child) for child in node.get("children", []))


def anchors(document: Path) -> list[str]:
    """The ids that GitHub gives headings: small letters, punctuation gone, hyphens for spaces, numbers for twins."""
    found: list[str] = []
    for heading in (node for node in tokens(document) if node["type"] == "heading"):
        slug = re.sub(r"[^\w\- ]", "", text_of(heading).lower()).replace(" ", "-")
        twins = sum(re.fullmatch(rf"{re.escape(slug)}(-\d+)?", other) is not None for other in found)
        found.append(f"{slug}-{twins}" if twins else slug)
    return found


def problem(document: Path, link: str) -> str | None:
    """Why a link of `document` leads nowhere, or None. Other sites are not asked; their addresses must be https."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None if parts.scheme == "https" and "." in parts.netloc else "it is no https address"
    goal = (document.parent / unquote(parts.path)).resolve() if parts.path else document
    if not goal.is_relative_to(ROOT):
        return "it leads out of the project"
    if not goal.exists():
        return f"there is no {goal.relative_to(ROOT)}"
    if parts.fragment and (goal.suffix != ".md" or parts.fragment not in anchors(goal)):
        return f"{goal.relative_to(ROOT)} has no heading #{parts.fragment}"
    return None


def links(document: Path) -> list[str]:
    return [node["attrs"]["url"] for node in tokens(document) if node["type"] in ("link", "image")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    found = {link: reason for link in links(document) if (reason := problem(document, link))}
    assert not found, "\n".join(f"{document.name}: {link}: {reason}" for link, reason in found.items())


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        ("docs/absent.md", "there is no docs/absent.md"),
        ("docs/limits.md#absent", "docs/limits.md has no heading #absent"),
        ("#absent", "README.md has no heading #absent"),
        ("LICENSE#absent", "LICENSE has no heading #absent"),
        ("../elsewhere.md", "it leads out of the project"),
        ("http://example.org", "it is no https address"),
        ("docs/limits.md#case-by-case", None),
        ("#limits", None),
        ("https://example.org/a#b", None),
    ],
)
def test_a_broken_link_is_seen(link: str, reason: str | None) -> None:
    assert problem(ROOT / "README.md", link) == reason


def test_headings_with_signs_and_twins_get_githubs_ids(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("# 8. Why not min(1, p/q)\n\n## `a_b` and C-D\n\n## Try\n\n## Try\n")
    assert anchors(document) == ["8-why-not-min1-pq", "a_b-and-c-d", "try", "try-1"]


# Paths in code


def named_paths(document: Path) -> set[str]:
    """Whole pieces of inline code, and words of commands, that begin with one of the project's folders."""
    code = [node["raw"] for node in tokens(document) if node["type"] == "codespan"]
    code += [node["raw"] for node in tokens(document) if node["type"] == "block_code" and not is_python(node)]
    words = {word.strip("'\"") for piece in code for word in piece.split()}
    return {word for word in words if word.startswith(tuple(f"{place}/" for place in PLACES))}


def is_python(node: dict[str, Any]) -> bool:
    return str(node.get("attrs", {}).get("info", "")).startswith("python")


def path_problem(name: str) -> str | None:
    path, _, test = name.partition("::")
    if not any(ROOT.glob(path)):
        return f"there is no {path}"
    last = test.split("::")[-1]
    if test and not re.search(rf"^\s*(def|class) {re.escape(last)}\b", (ROOT / path).read_text(), re.MULTILINE):
        return f"{path} has no {last}"
    return None


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_paths_in_code_exist(document: Path) -> None:
    found = {name: reason for name in sorted(named_paths(document)) if (reason := path_problem(name))}
    assert not found, "\n".join(f"{document.name}: {name}: {reason}" for name, reason in found.items())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("lib/ddtree/absent.py", "there is no lib/ddtree/absent.py"),
        ("tests/test_links.py::test_absent", "tests/test_links.py has no test_absent"),
        ("tests/test_links.py::test_a_broken_link_is_seen", None),
        ("params/*/quick.yaml", None),
        ("lib/ddtree/workbook/", None),
    ],
)
def test_a_broken_path_is_seen(name: str, reason: str | None) -> None:
    assert path_problem(name) == reason


@pytest.mark.parametrize("notebook", sorted(ROOT.glob("notebooks/*.ipynb")), ids=lambda path: path.stem)
def test_links_of_notebooks_lead_somewhere(notebook: Path) -> None:
    cells = nbformat.read(notebook, as_version=4).cells
    prose = parse("\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown"))
    found = [node["attrs"]["url"] for node in nodes(prose) if node["type"] in ("link", "image")]
    assert [link for link in found if problem(notebook, link)] == []
