"""Check Python and installed packages against pyproject.toml, for the workbook, serving, sweeps and tests."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check: subject, state, detail, and what fixes it ("" where there is nothing to fix)."""

    subject: str
    state: Literal["ok", "warning", "missing"]
    detail: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Pins:
    """What the project asks for: of Python, always, and with each extra."""

    python: SpecifierSet
    always: tuple[Requirement, ...]
    extras: dict[str, tuple[Requirement, ...]]


def read_pins(pyproject: Path) -> Pins:
    """Raises InvalidRequirement or InvalidSpecifier for a wrong line, KeyError for an extra that is absent."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    tables: dict[str, list[str]] = project["optional-dependencies"]
    return Pins(
        python=SpecifierSet(project["requires-python"]),
        always=tuple(_for_this_system(project["dependencies"])),
        extras={extra: tuple(_expanded(tables, extra, project["name"])) for extra in tables},
    )


def installed_versions() -> dict[str, str]:
    """Version of every distribution that this interpreter finds, by normalised name; as in import, the first wins.

    Half-removed packages, whose metadata lacks a name or version, count as absent.
    """
    versions: dict[str, str] = {}
    for distribution in metadata.distributions():
        name, version = distribution.metadata["Name"], distribution.metadata["Version"]
        if name and version:
            versions.setdefault(canonicalize_name(name), version)
    return versions


def check_python(version: str, executable: str, wanted: SpecifierSet) -> Check:
    found = f"{version}, {executable}"
    if wanted.contains(version, prereleases=True):
        return Check("python", "ok", found)
    fix = f"make an environment with another Python: Python {wanted}"
    return Check("python", "missing", f"{found}; Python {wanted} is needed", fix)


def check_packages(pins: Pins, installed: Mapping[str, str], pip: str) -> list[Check]:
    """One result if all is as pinned, else one for each needed package that differs.

    The environment with SGLang is held to the extra `gpu`, whose torch is another than the workbook's.
    `installed` is version by normalised name; `pip` is how pip is called here, the beginning of each command.
    """
    extra = "gpu" if "sglang" in installed else "workbook"
    # An extra's line for a package replaces the general one, so each package is checked once.
    wanted = {canonicalize_name(line.name): line for line in [*pins.always, *pins.extras[extra]]}.values()
    differing = _differing(list(wanted), installed, pip)
    return differing or [Check("packages", "ok", f"all {len(wanted)} as pyproject.toml asks for with [{extra}]")]


def check_package(wanted: Requirement, installed: Mapping[str, str], pip: str) -> Check | None:
    """None if the requirement is met; absent, too old and another version are "missing", too new is a warning."""
    found = installed.get(canonicalize_name(wanted.name))
    fix = f'{pip} install "{wanted}"'
    if found is None:
        return Check(wanted.name, "missing", f"not installed; {wanted} is needed", fix)
    try:
        version = Version(found)
    except InvalidVersion:  # a distribution may call its version anything
        return Check(wanted.name, "missing", f"{found} is another version; {wanted} is needed", fix)
    if wanted.specifier.contains(version, prereleases=True):
        return None
    bounds = [Version(pin.version.removesuffix(".*")) for pin in wanted.specifier if pin.operator != "!="]
    if bounds and version >= max(bounds):
        return Check(wanted.name, "warning", f"{found} is too new, never tried here; {wanted} is asked for", fix)
    relation = "too old" if bounds and version < min(bounds) else "another version"
    return Check(wanted.name, "missing", f"{found} is {relation}; {wanted} is needed", fix)


def check_tools(pins: Pins, installed: Mapping[str, str], pip: str) -> Check:
    """What only tests and checks need, as one result: a workbook runs without them."""
    lines = pins.extras["tools"]
    absent = [str(line) for line in lines if check_package(line, installed, pip)]
    if not absent:
        return Check("tools", "ok", f"all {len(lines)} that tests and checks need")
    fix = f"{pip} install " + " ".join(f'"{line}"' for line in absent)
    return Check("tools", "warning", f"not here, needed only by `make test`: {', '.join(absent)}", fix)


def check_serving(pins: Pins, installed: Mapping[str, str], pip: str) -> Check:
    if "sglang" not in installed:
        detail = "SGLang is not in this environment; serving has a separate one"
        return Check("serving", "warning", detail, "conda env create -f environment-gpu.yml, on a GPU machine")
    lines = pins.extras["gpu"]
    differing = _differing(lines, installed, pip)
    if not differing:
        versions = ", ".join(f"{line.name} {installed[canonicalize_name(line.name)]}" for line in lines)
        return Check("serving", "ok", versions)
    detail = "; ".join(f"{result.subject}: {result.detail}" for result in differing)
    return Check("serving", "warning", detail, differing[0].fix)


def check_sweeps(pins: Pins, installed: Mapping[str, str], pip: str) -> Check:
    if "snakemake" not in installed:
        fix = f"{pip} install snakemake"
        return Check("sweeps", "missing", "Snakemake, which runs them, is not installed", fix)
    here = f"snakemake {installed['snakemake']}"
    (plugin,) = pins.extras["slurm"]
    differing = check_package(plugin, installed, pip)
    if differing is None:
        return Check("sweeps", "ok", f"{here}, here and through SLURM")
    if "sglang" in installed:
        return Check("sweeps", "ok", f"{here}, here; through SLURM from the workbook's environment")
    return Check("sweeps", "warning", f"{here}, here; SLURM needs {plugin}", differing.fix)


def _differing(lines: Sequence[Requirement], installed: Mapping[str, str], pip: str) -> list[Check]:
    return [result for line in lines if (result := check_package(line, installed, pip))]


def _expanded(tables: dict[str, list[str]], extra: str, project: str) -> list[Requirement]:
    """The lines of an extra, with those of the project's other extras that it names in their place."""
    lines = _for_this_system(tables[extra])
    others = [name for line in lines if line.name == project for name in sorted(line.extras)]
    own = [line for line in lines if line.name != project]
    return own + [line for name in others for line in _expanded(tables, name, project)]


def _for_this_system(lines: list[str]) -> list[Requirement]:
    return [line for line in map(Requirement, lines) if line.marker is None or line.marker.evaluate()]
