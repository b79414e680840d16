"""environment.yml brings Python and pip alone; what it installs through pip is this project with extras it has."""

import re
import tomllib

import yaml
from ddtree.workbook.paths import project_root
from packaging.specifiers import SpecifierSet
from packaging.version import Version


def test_environment_file_takes_its_list_from_pyproject() -> None:
    root = project_root()
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    environment = yaml.safe_load((root / "environment.yml").read_text())
    conda = [line for line in environment["dependencies"] if isinstance(line, str)]
    (pip,) = (line["pip"] for line in environment["dependencies"] if isinstance(line, dict))
    assert {re.split("[<>=]", line)[0] for line in conda} == {"python", "pip", "git"}
    python = next(line for line in conda if line.startswith("python=")).removeprefix("python=")
    assert Version(python) in SpecifierSet(project["requires-python"])
    (line,) = pip
    option, path = line.split()
    assert option == "--editable"
    assert path.startswith(".[")
    extras = path.removeprefix(".[").removesuffix("]").split(",")
    assert set(extras) <= set(project["optional-dependencies"])
