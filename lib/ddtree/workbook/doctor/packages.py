"""Installed packages against the pins of pyproject.toml; what deviates is named, with the pip command that mends it."""

from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from ddtree.workbook.doctor.finding import Finding
from ddtree.workbook.doctor.pins import Pins


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
