"""The lock files meet every requirement of pyproject.toml, and name neither a registry nor a folder."""

import itertools
import shlex
import subprocess
from dataclasses import dataclass

import pytest
from ddtree.workbook.doctor.packages import read_pins
from ddtree.workbook.paths import project_root
from packaging.markers import Environment, default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


@dataclass(frozen=True, slots=True)
class Lock:
    file: str
    extras: tuple[str, ...]
    python: str  # a full version of the minor release that the lock is asked about


LOCKS = [
    Lock("requirements-cpu.lock", ("dev",), "3.11.9"),
    Lock("requirements-cpu.lock", ("dev",), "3.12.9"),
    Lock("requirements-gpu.lock", ("gpu", "notebooks", "tools"), "3.12.9"),
]


def lines(file: str) -> list[Requirement]:
    text = (project_root() / file).read_text()
    return [Requirement(line) for line in text.splitlines() if line and not line.startswith("#")]


def linux(python: str) -> Environment:
    facts = {
        "python_version": python.rpartition(".")[0],
        "python_full_version": python,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "os_name": "posix",
    }
    return {**default_environment(), **facts}  # type: ignore[typeddict-item]


def locked(lock: Lock) -> dict[str, str]:
    """Versions that the lock gives on Linux x86_64; more than one for a package is an error of the lock."""
    environment = {**linux(lock.python)}
    versions: dict[str, str] = {}
    for line in lines(lock.file):
        if line.marker is None or line.marker.evaluate(environment):
            (pin,) = line.specifier
            assert canonicalize_name(line.name) not in versions, f"{lock.file} pins {line.name} twice"
            versions[canonicalize_name(line.name)] = pin.version
    return versions


def unmet(wanted: Requirement, versions: dict[str, str]) -> str | None:
    """Why the locked versions do not meet a requirement, or None."""
    found = versions.get(canonicalize_name(wanted.name))
    if found is None:
        return f"{wanted} is not locked"
    return None if wanted.specifier.contains(found, prereleases=True) else f"{wanted} is locked at {found}"


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: f"{lock.file}-{lock.python}")
def test_lock_meets_pyproject(lock: Lock) -> None:
    pins = read_pins(project_root() / "pyproject.toml")
    wanted = [*pins.always, *(line for extra in lock.extras for line in pins.extras[extra])]
    versions = locked(lock)
    problems = [problem for line in wanted if (problem := unmet(line, versions))]
    assert not problems, f"{'; '.join(problems)}: run `make lock`"


@pytest.mark.parametrize("file", sorted({lock.file for lock in LOCKS}))
def test_lock_pins_exactly_and_names_no_place(file: str) -> None:
    for line in lines(file):
        assert line.url is None
        assert not line.extras  # pip refuses constraints with extras
        assert [pin.operator for pin in line.specifier] == ["=="]
        assert "+" not in str(line.specifier)  # a build of one index, such as torch's +cpu
    text = (project_root() / file).read_text()
    assert not [line for line in text.splitlines() if line.startswith("-") or "://" in line or "/" in line]


def test_cpu_lock_has_no_cuda() -> None:
    names = {line.name for line in lines("requirements-cpu.lock")}
    assert not [name for name in names if name.startswith(("nvidia-", "cuda-"))]


def test_gpu_lock_has_one_sgl_kernel() -> None:
    """sgl-kernel and sglang-kernel install the same module over each other."""
    names = {line.name for line in lines("requirements-gpu.lock")}
    assert "sglang-kernel" in names
    assert "sgl-kernel" not in names


@pytest.mark.parametrize(
    ("wanted", "sentence"), [("torch>=2.14", "locked at 2.13.0"), ("absent", "not locked"), ("Torch==2.13.*", None)]
)
def test_unmet_requirements_are_named(wanted: str, sentence: str | None) -> None:
    problem = unmet(Requirement(wanted), {"torch": "2.13.0"})
    assert problem is None if sentence is None else sentence in str(problem)


def test_make_installs_what_is_locked() -> None:
    """By the commands that `make` would run for an environment that is not there."""
    dry = ["make", "--dry-run", "--always-make", ".venv/ready"]
    shown = subprocess.run(dry, cwd=project_root(), capture_output=True, text=True, check=True).stdout
    (install,) = [shlex.split(line) for line in shown.splitlines() if "--editable" in line]
    options = dict(itertools.pairwise(install))
    assert (options["--constraint"], options["--editable"]) == ("requirements-cpu.lock", ".[dev]")
