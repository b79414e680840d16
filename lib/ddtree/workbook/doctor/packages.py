"""Check installed packages against the requirements of pyproject.toml, for the workbook, serving and sweeps."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
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
class Finding:
    """What was found of one subject, and the command or act that would mend it ("" where there is nothing to mend)."""

    subject: str
    state: State
    detail: str
    remedy: str = ""


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


def examine_python(version: str, executable: str, wanted: SpecifierSet) -> Finding:
    if wanted.contains(version, prereleases=True):
        return Finding("python", "ok", f"{version}, {executable}")
    remedy = f"make an environment with another Python: Python {wanted}"
    return Finding("python", "missing", f"{version}, {executable}; Python {wanted} is needed", remedy)


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


def serves(installed: Mapping[str, str]) -> bool:
    """Whether this is the environment of the extra `gpu`, whose torch is another than the workbook's."""
    return "sglang" in installed


def examine_packages(pins: Pins, installed: Mapping[str, str], pip: str) -> list[Finding]:
    """One finding for all that is as pinned, and one for each needed package that is not.

    Args:
        installed: version by normalised name.
        pip: how pip is called here, the beginning of each command.
    """
    extra = "gpu" if serves(installed) else "workbook"
    wanted = _narrowest([*pins.always, *pins.extras[extra]])
    deviating = [finding for line in wanted if (finding := examine_package(line, installed, pip))]
    if not deviating:
        return [Finding("packages", "ok", f"all {len(wanted)} as pyproject.toml asks for with [{extra}]")]
    return deviating


def examine_tools(pins: Pins, installed: Mapping[str, str], pip: str) -> Finding:
    """What tests and checks need, as one finding: a workbook runs without them."""
    lines = pins.extras["tools"]
    absent = [str(line) for line in lines if not _meets(line, installed)]
    if not absent:
        return Finding("tools", "ok", f"all {len(lines)} that tests and checks need")
    names = ", ".join(absent)
    return Finding("tools", "warning", f"not here, needed by `make test` alone: {names}", _install(pip, absent))


def examine_package(wanted: Requirement, installed: Mapping[str, str], pip: str) -> Finding | None:
    """A finding that tells absent, too old, too new and merely other versions apart; None if the requirement is met."""
    if _meets(wanted, installed):
        return None
    remedy = _install(pip, [str(wanted)])
    found = installed.get(canonicalize_name(wanted.name))
    if found is None:
        return Finding(wanted.name, "missing", f"not installed; {wanted} is needed", remedy)
    if _is_newer(found, wanted):
        return Finding(wanted.name, "warning", f"{found} is too new, never tried here; {wanted} is asked for", remedy)
    relation = "too old" if _is_older(found, wanted) else "another version"
    return Finding(wanted.name, "missing", f"{found} is {relation}; {wanted} is needed", remedy)


def _narrowest(lines: Iterable[Requirement]) -> list[Requirement]:
    """An extra's line for a package in place of the general one, so that each package is judged once."""
    return list({canonicalize_name(line.name): line for line in lines}.values())


def _meets(wanted: Requirement, installed: Mapping[str, str]) -> bool:
    found = installed.get(canonicalize_name(wanted.name))
    return found is not None and _is_version(found) and wanted.specifier.contains(found, prereleases=True)


def _is_newer(found: str, wanted: Requirement) -> bool:
    bounds = _bounds(wanted, "==", "<", "<=")
    return bool(bounds) and _is_version(found) and Version(found) >= min(bounds)


def _is_older(found: str, wanted: Requirement) -> bool:
    bounds = _bounds(wanted, "==", ">", ">=")
    return bool(bounds) and _is_version(found) and Version(found) < max(bounds)


def _bounds(wanted: Requirement, *operators: str) -> list[Version]:
    return [Version(pin.version.removesuffix(".*")) for pin in wanted.specifier if pin.operator in operators]


def _is_version(text: str) -> bool:
    """Whether a distribution's own word for its version is one that can be compared."""
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _install(pip: str, lines: Sequence[str]) -> str:
    return f"{pip} install " + " ".join(f'"{line}"' for line in lines)


def examine_serving(pins: Pins, installed: Mapping[str, str], pip: str) -> Finding:
    if not serves(installed):
        detail = "SGLang is not in this environment; serving has one of its own"
        return Finding("serving", "warning", detail, "conda env create -f environment-gpu.yml, on a machine with a GPU")
    lines = pins.extras["gpu"]
    deviating = [found for line in lines if (found := examine_package(line, installed, pip))]
    if not deviating:
        return Finding("serving", "ok", ", ".join(f"{line.name} {installed[line.name]}" for line in lines))
    told = "; ".join(f"{found.subject}: {found.detail}" for found in deviating)
    return Finding("serving", "warning", told, deviating[0].remedy)


def examine_sweeps(pins: Pins, installed: Mapping[str, str], pip: str) -> Finding:
    if "snakemake" not in installed:
        return Finding("sweeps", "missing", "Snakemake, which runs them, is not installed", f"{pip} install snakemake")
    here = f"snakemake {installed['snakemake']}"
    (plugin,) = pins.extras["slurm"]
    deviating = examine_package(plugin, installed, pip)
    if deviating is None:
        return Finding("sweeps", "ok", f"{here}, here and through SLURM")
    if serves(installed):
        return Finding("sweeps", "ok", f"{here}, here; through SLURM from the workbook's environment")
    return Finding("sweeps", "warning", f"{here}, here; SLURM needs {plugin}", deviating.remedy)
