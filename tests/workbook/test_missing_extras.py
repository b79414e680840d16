"""Without the extras `notebooks` and `sweeps` a command that needs one names it, and the others work."""

import sys
import tomllib
from pathlib import Path

import pytest
from ddtree.workbook import cli
from ddtree.workbook.cli import EXTRAS, RUN_FAILED, app
from ddtree.workbook.paths import project_root
from typer.testing import CliRunner, Result

# The first modules that a command imports which need an extra.
IMPORTING = ("explore", "runner", "report.html", "report.index", "sweep.executor")


def ddtree(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project, and of the package what pyproject.toml says now: an editable install keeps what it said then."""
    tables = tomllib.loads((project_root() / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lines = [f'{line}; extra == "{extra}"' for extra in EXTRAS for line in tables[extra]]
    monkeypatch.setattr(cli, "requires", lambda package: lines)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "ddtree"\n')
    (tmp_path / "notebooks").mkdir()
    for name in ("01_tree", "03_live"):
        (tmp_path / "notebooks" / f"{name}.ipynb").write_text("{}")
    (tmp_path / "few.yaml").write_text("grid: {budget: [2, 4]}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def hide(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """As if `modules` were not installed, also for those of the workbook that have imported them already."""
    for name in [name for name in sys.modules if name.startswith(tuple(f"{module}." for module in modules))]:
        monkeypatch.delitem(sys.modules, name)
    for name in IMPORTING:
        monkeypatch.delitem(sys.modules, f"ddtree.workbook.{name}", raising=False)
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)


@pytest.mark.parametrize(
    ("arguments", "module", "package", "extra"),
    [
        (["run", "01_tree"], "papermill", "papermill", "notebooks"),
        (["run", "01_tree"], "plotly", "plotly", "notebooks"),
        (["report", "outputs/none"], "bs4", "beautifulsoup4", "notebooks"),
        (["report", "--index", "."], "nbformat", "nbformat", "notebooks"),
        (["sweep", "few.yaml"], "snakemake", "snakemake", "sweeps"),
        (["sweep", "few.yaml", "-n"], "papermill", "papermill", "notebooks"),
    ],
)
def test_a_missing_package_is_a_sentence_with_its_extra(
    project: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], module: str, package: str, extra: str
) -> None:
    hide(monkeypatch, module)
    done = ddtree(*arguments)
    assert (done.exit_code, done.stdout) == (RUN_FAILED, "")
    (line,) = done.stderr.splitlines()
    assert f"`ddtree {arguments[0]}` needs {package}," in line
    assert line.endswith(f'-m pip install "ddtree[{extra}]"')
    assert not (project / "outputs").exists()


def test_help_and_wrong_arguments_need_no_extra(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "papermill", "jupyter_client", "plotly", "snakemake", "bs4", "nbformat")
    assert ddtree("--help").exit_code == ddtree("run", "--help").exit_code == ddtree("sweep", "--help").exit_code == 0
    assert ddtree("run", "01_tree", "-p", "budgte=3").exit_code == 2


def test_another_missing_module_keeps_its_traceback(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "ddtree.workbook.runner")
    assert isinstance(ddtree("run", "01_tree").exception, ModuleNotFoundError)
