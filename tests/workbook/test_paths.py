"""The project root is found from anywhere, and relative paths hang on it."""

from pathlib import Path

import pytest
from ddtree.workbook import paths
from wording import names

MARKER = '[project]\nname = "ddtree"\n'


def test_nearest_marker_above_the_current_folder_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text(MARKER)
    deep = tmp_path / "notebooks" / "drafts"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert paths.project_root() == tmp_path
    assert paths.resolve("outputs/x") == tmp_path / "outputs" / "x"
    assert paths.resolve("/absolute") == Path("/absolute")


def test_another_projects_marker_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text(MARKER)
    inner = tmp_path / "vendored"
    inner.mkdir()
    (inner / "pyproject.toml").write_text('[project]\nname = "other"\n')
    monkeypatch.chdir(inner)
    assert paths.project_root() == tmp_path


def test_from_elsewhere_the_package_finds_its_own_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert (paths.project_root() / "lib" / "ddtree" / "workbook" / "paths.py").is_file()


def test_without_a_marker_the_error_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(paths, "__file__", str(tmp_path / "site-packages" / "paths.py"))
    with pytest.raises(paths.ProjectRootError, match=str(tmp_path)):
        paths.project_root()


def test_a_broken_marker_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text("[project\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(paths.ProjectRootError, match=names("pyproject.toml")):
        paths.project_root()
