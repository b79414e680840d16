"""The environment files bring Python, pip and git alone; through pip they install this project, in locked versions."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ddtree.workbook.doctor.packages import Pins, read_pins
from ddtree.workbook.paths import project_root
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

# conda's own spelling of a version: =3.12 means 3.12.*, and a list is joined by commas
CONDA_LINE = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9._-]*)(?P<version>(?P<op>==|>=|<=|!=|=|>|<)\d+(\.\d+)*(,(==|>=|<=|!=|>|<)\d+(\.\d+)*)*)?"
)
FROM_CONDA = {"python", "pip", "git"}
FILES = {
    "environment.yml": ("requirements-cpu.lock", {"dev"}),
    "environment-gpu.yml": ("requirements-gpu.lock", {"gpu"}),
}


def conda_specifiers(line: str) -> tuple[str, SpecifierSet]:
    """Name and versions of a conda line; ValueError for one that conda would misread or refuse."""
    match = CONDA_LINE.fullmatch(line)
    if match is None:
        raise ValueError(f'"{line}" is no conda requirement of the form name, name=3.12 or name>=25,<26.')
    versions = match["version"] or ""
    if match["op"] == "=":
        fuzzy, _, rest = versions.removeprefix("=").partition(",")
        versions = f"=={fuzzy}.*" + (f",{rest}" if rest else "")
    return match["name"], SpecifierSet(versions)


def split(environment: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The lines for conda and the lines for pip."""
    lines = environment["dependencies"]
    (pip,) = (line["pip"] for line in lines if isinstance(line, dict))
    return [line for line in lines if isinstance(line, str)], pip


@pytest.fixture(scope="module")
def pins() -> Pins:
    return read_pins(project_root() / "pyproject.toml")


@pytest.mark.parametrize("name", FILES)
def test_conda_brings_python_pip_and_git_alone(name: str, pins: Pins) -> None:
    environment = yaml.safe_load((project_root() / name).read_text())
    assert set(environment) == {"name", "channels", "dependencies"}
    assert environment["channels"] == ["conda-forge"]
    conda, _ = split(environment)
    wanted = dict(conda_specifiers(line) for line in conda)
    assert set(wanted) == FROM_CONDA
    minor = str(wanted["python"]).removeprefix("==").removesuffix(".*")
    assert Version(minor) in pins.python


@pytest.mark.parametrize("name", FILES)
def test_pip_installs_the_project_with_extras_it_has_in_locked_versions(name: str, pins: Pins) -> None:
    lock, extras = FILES[name]
    _, lines = split(yaml.safe_load((project_root() / name).read_text()))
    options = dict(line.split(maxsplit=1) for line in lines if line.startswith("--"))
    assert [Requirement(line) for line in lines if not line.startswith("--")] == []
    assert options.keys() == {"--constraint", "--editable"}
    assert options["--constraint"] == lock
    named = Requirement(options["--editable"].replace(".", "ddtree", 1)).extras
    assert named == extras
    assert named <= set(pins.extras)


def test_environments_have_names_of_their_own() -> None:
    names = [yaml.safe_load((project_root() / name).read_text())["name"] for name in FILES]
    assert names == ["ddtree", "ddtree-gpu"]


@pytest.mark.parametrize(
    "line", ["python=>>3.12", "python 3.12", "python=", "Python=3.12", "python=3.12=", "pip>=25 git"]
)
def test_conda_lines_that_are_none_are_refused(line: str) -> None:
    with pytest.raises(ValueError, match="no conda requirement"):
        conda_specifiers(line)


@pytest.mark.parametrize(
    ("line", "inside", "outside"),
    [("python=3.12", "3.12.9", "3.13.0"), ("pip>=25,<26", "25.3", "26.0"), ("git", "2.39", None)],
)
def test_conda_lines_mean_what_conda_means(line: str, inside: str, outside: str | None) -> None:
    _, versions = conda_specifiers(line)
    assert inside in versions
    assert outside is None or outside not in versions


def test_the_two_torches_are_told_apart(pins: Pins) -> None:
    """No torch satisfies both environments, and the range that holds for both admits each."""
    (always,) = (line.specifier for line in pins.always if line.name == "torch")
    for extra, version in (("workbook", "2.13.0"), ("gpu", "2.11.0")):
        (pinned,) = (line.specifier for line in pins.extras[extra] if line.name == "torch")
        assert str(pinned) == f"=={version}"
        assert version in always
    gpu = {line.name: str(line.specifier) for line in pins.extras["gpu"]}
    assert gpu == {"torch": "==2.11.0", "sglang": "==0.5.16", "sglang-kernel": "==0.4.5"}


def test_newcomers_extra_is_the_workbook_and_its_tools(pins: Pins) -> None:
    assert set(pins.extras["dev"]) == {*pins.extras["workbook"], *pins.extras["tools"], *pins.extras["slurm"]}


def test_a_line_that_is_no_requirement_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "pyproject.toml"
    wrong.write_text(
        '[project]\nname="x"\nrequires-python=">=3.11"\ndependencies=["a=>1"]\n[project.optional-dependencies]\n'
    )
    with pytest.raises(InvalidRequirement):
        read_pins(wrong)
