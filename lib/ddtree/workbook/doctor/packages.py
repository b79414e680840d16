"""Check Python and installed packages against pyproject.toml, for the workbook, serving, sweeps and tests."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

State = Literal["ok", "warning", "missing"]


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check: subject, state, detail, and what fixes it ("" where there is nothing to fix)."""

    subject: str
    state: State
    detail: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Pins:
    """What the project asks for: of Python, always, and with each extra."""

    python: SpecifierSet
    always: list[Requirement]
    extras: dict[str, list[Requirement]]


def read_pins(pyproject: Path) -> Pins:
    """Raises InvalidRequirement or InvalidSpecifier for a wrong line, KeyError for an extra that is absent."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    tables: dict[str, list[str]] = project["optional-dependencies"]

    def requirements(lines: list[str]) -> list[Requirement]:
        """Those for this system; an extra of the project is replaced by its own requirements."""
        found = []
        for line in map(Requirement, lines):
            if line.name == project["name"]:
                found += [own for extra in sorted(line.extras) for own in requirements(tables[extra])]
            elif line.marker is None or line.marker.evaluate():
                found.append(line)
        return found

    return Pins(
        python=SpecifierSet(project["requires-python"]),
        always=requirements(project["dependencies"]),
        extras={extra: requirements(lines) for extra, lines in tables.items()},
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
    """One result if all that the library needs is as pinned, else one for each package that differs.

    The environment with SGLang is held to the extra `gpu`, whose torch is another than the workbook's.
    `installed` is version by normalised name; `pip` is how pip is called here, the beginning of each command.
    """
    extra = "gpu" if "sglang" in installed else "workbook"
    own = [line for line in pins.extras[extra] if line not in pins.extras["notebooks"] + pins.extras["sweeps"]]
    # An extra's line for a package replaces the general one, so each package is checked once.
    wanted = {canonicalize_name(line.name): line for line in [*pins.always, *own]}.values()
    differing = _differing(wanted, installed, pip)
    return differing or [Check("packages", "ok", f"all {len(wanted)} as pyproject.toml asks for with [{extra}]")]


def check_extra(extra: str, purpose: str, pins: Pins, installed: Mapping[str, str], pip: str, *, needed: bool) -> Check:
    """Whether all of `extra` is as pinned, which `purpose` need; what is not `needed` here is at worst a warning."""
    lines = pins.extras[extra]
    differing = _differing(lines, installed, pip)
    if not differing:
        return Check(extra, "ok", f"all {len(lines)} packages that {purpose} need")
    absent = [line.name for line in lines if canonicalize_name(line.name) not in installed]
    words = [f"not installed: {', '.join(absent)}"] if absent else []
    words += [f"{result.subject}: {result.detail}" for result in differing if result.subject not in absent]
    state: State = "missing" if needed and any(result.state == "missing" for result in differing) else "warning"
    return Check(extra, state, f"{purpose} need [{extra}]; {'; '.join(words)}", f'{pip} install "ddtree[{extra}]"')


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
    served = "sglang" in installed
    result = check_extra("sweeps", "sweeps", pins, installed, pip, needed=not served)
    if result.state != "ok":
        return result
    here = f"snakemake {installed['snakemake']}"
    (plugin,) = pins.extras["slurm"]
    differing = check_package(plugin, installed, pip)
    if differing is None:
        return Check("sweeps", "ok", f"{here}, here and through SLURM")
    if served:
        return Check("sweeps", "ok", f"{here}, here; through SLURM from the workbook's environment")
    return Check("sweeps", "warning", f"{here}, here; SLURM needs {plugin}", differing.fix)


def _differing(lines: Iterable[Requirement], installed: Mapping[str, str], pip: str) -> list[Check]:
    return [result for line in lines if (result := check_package(line, installed, pip))]
