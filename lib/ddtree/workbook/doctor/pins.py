"""The requirements of pyproject.toml, the one list of dependencies; extras that name other extras are unfolded."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet


@dataclass(frozen=True, slots=True)
class Pins:
    """What the project asks for: of Python, always, and with each extra."""

    python: SpecifierSet
    always: tuple[Requirement, ...]
    extras: dict[str, tuple[Requirement, ...]]


def read_pins(pyproject: Path) -> Pins:
    """Raises InvalidRequirement or InvalidSpecifier for a line that is none, KeyError for an extra that is absent."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    tables: dict[str, list[str]] = project["optional-dependencies"]
    return Pins(
        python=SpecifierSet(project["requires-python"]),
        always=tuple(_applying(project["dependencies"])),
        extras={extra: tuple(_unfolded(tables, extra, project["name"])) for extra in tables},
    )


def _unfolded(tables: dict[str, list[str]], extra: str, project: str) -> list[Requirement]:
    lines = _applying(tables[extra])
    others = [name for line in lines if line.name == project for name in sorted(line.extras)]
    own = [line for line in lines if line.name != project]
    return own + [line for name in others for line in _unfolded(tables, name, project)]


def _applying(lines: list[str]) -> list[Requirement]:
    return [line for line in map(Requirement, lines) if line.marker is None or line.marker.evaluate()]
