"""Packages that are absent, too old, too new or merely another version are told apart, with the command that mends."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from ddtree.workbook.doctor.packages import (
    Pins,
    check_extra,
    check_package,
    check_packages,
    check_serving,
    check_sweeps,
    installed_versions,
    read_pins,
)
from packaging.requirements import Requirement
from wording import tells

PYPROJECT = """
[project]
name = "ddtree"
requires-python = ">=3.11"
dependencies = ["torch>=2.11,<2.14", "numpy>=2.2", "colorama>=0.4; sys_platform == 'nowhere'"]
[project.optional-dependencies]
notebooks = ["plotly>=6.3", "beautifulsoup4>=4.13"]
sweeps = ["snakemake>=9.27"]
workbook = ["ddtree[notebooks,sweeps]", "torch==2.13.0"]
gpu = ["sglang==0.5.16", "torch==2.11.0"]
tools = ["pytest>=9.0", "ruff>=0.14"]
slurm = ["snakemake-executor-plugin-slurm>=2.8"]
dev = ["ddtree[workbook,tools]", "types-PyYAML>=6"]
"""
WORKBOOK = {"torch": "2.13.0+cpu", "numpy": "2.4.6"}
SERVING = {"torch": "2.11.0+cu130", "numpy": "2.3.5", "sglang": "0.5.16"}
PIP = ".venv/bin/python -m pip"


@pytest.fixture
def pins(tmp_path: Path) -> Pins:
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    return read_pins(tmp_path / "pyproject.toml")


def test_extras_are_unfolded_and_other_systems_lines_left_out(pins: Pins) -> None:
    assert [line.name for line in pins.always] == ["torch", "numpy"]
    dev = {str(line) for line in pins.extras["dev"]}
    workbook = {"torch==2.13.0", "plotly>=6.3", "beautifulsoup4>=4.13", "snakemake>=9.27"}
    assert dev == {*workbook, "types-PyYAML>=6", "pytest>=9.0", "ruff>=0.14"}


@pytest.mark.parametrize(("installed", "extra"), [(WORKBOOK, "workbook"), (SERVING, "gpu")])
def test_each_environment_is_judged_by_its_own_pins(pins: Pins, installed: Mapping[str, str], extra: str) -> None:
    (result,) = check_packages(pins, installed, PIP)
    assert result.state == "ok"
    assert f"[{extra}]" in result.detail


@pytest.mark.parametrize(
    ("line", "found", "state", "words"),
    [
        ("torch==2.13.0", None, "missing", "not installed"),
        ("torch==2.13.0", "2.12.1", "missing", "2.12.1 old"),
        ("torch==2.13.0", "2.14.0", "warning", "2.14.0 new"),
        ("torch>=2.11,<2.14", "2.14", "warning", "2.14 new"),
        ("torch>=2.11,<2.14", "2.10.9", "missing", "2.10.9 old"),
        ("numpy!=2.5.0", "2.5.0", "missing", "2.5.0"),
        ("torch==2.13.0", "nightly", "missing", "nightly"),
        ("numpy<3", "3.0", "warning", "3.0 new"),
        ("numpy==2.*", "3.0", "warning", "3.0 new"),
    ],
)
def test_deviation_is_named_with_its_command(line: str, found: str | None, state: str, words: str) -> None:
    wanted = Requirement(line)
    installed = {} if found is None else {wanted.name: found}
    result = check_package(wanted, installed, PIP)
    assert result is not None
    assert (result.subject, result.state) == (wanted.name, state)
    assert tells(result.detail, words)
    assert result.fix == f'{PIP} install "{wanted}"'


@pytest.mark.parametrize(
    ("line", "found"),
    [("torch==2.13.0", "2.13.0+cpu"), ("numpy>=2.2", "2.2"), ("types-PyYAML>=6", "6.0.12"), ("a>=1", "1.1rc1")],
)
def test_what_meets_the_requirement_is_no_finding(line: str, found: str) -> None:
    assert check_package(Requirement(line), {Requirement(line).name.lower(): found}, PIP) is None


def test_a_package_with_two_lines_is_told_once(pins: Pins) -> None:
    results = check_packages(pins, {"numpy": "2.4.6"}, PIP)
    assert [(result.subject, result.state) for result in results] == [("torch", "missing")]
    assert "torch==2.13.0" in results[0].detail


@pytest.mark.parametrize(
    ("installed", "needed", "state", "words"),
    [
        ({"plotly": "6.9", "beautifulsoup4": "4.14"}, True, "ok", "notebooks"),
        ({"plotly": "6.9"}, True, "missing", "[notebooks] beautifulsoup4"),
        ({"plotly": "6.0"}, True, "missing", "[notebooks] beautifulsoup4 plotly 6.0 >=6.3"),
        ({}, False, "warning", "plotly beautifulsoup4"),
    ],
)
def test_an_extra_is_one_result_with_the_command_that_installs_it(
    pins: Pins, installed: Mapping[str, str], needed: bool, state: str, words: str
) -> None:
    result = check_extra("notebooks", "notebooks", pins, installed, PIP, needed=needed)
    assert (result.subject, result.state) == ("notebooks", state)
    assert all(word in result.detail for word in words.split())
    assert result.fix == ("" if state == "ok" else f'{PIP} install "ddtree[notebooks]"')


def test_serving_names_its_versions_or_what_deviates(pins: Pins) -> None:
    assert check_serving(pins, SERVING, PIP).detail == "sglang 0.5.16, torch 2.11.0+cu130"
    assert "environment-gpu.yml" in check_serving(pins, WORKBOOK, PIP).fix
    newer = check_serving(pins, {**SERVING, "sglang": "0.5.23"}, PIP)
    assert newer.state == "warning"
    assert tells(newer.detail, "sglang 0.5.23")


@pytest.mark.parametrize(
    ("installed", "state", "words"),
    [
        ({}, "missing", "snakemake"),
        ({"sglang": "0.5.16"}, "warning", "snakemake"),
        ({"snakemake": "9.27.1"}, "warning", "snakemake-executor-plugin-slurm>=2.8"),
        ({"snakemake": "9.27.1", "snakemake-executor-plugin-slurm": "2.8.0"}, "ok", "SLURM"),
        ({"snakemake": "9.27.1", "sglang": "0.5.16"}, "ok", "environment"),
    ],
)
def test_sweeps(pins: Pins, installed: Mapping[str, str], state: str, words: str) -> None:
    result = check_sweeps(pins, installed, PIP)
    assert result.state == state
    assert tells(result.detail, words)


def test_installed_versions_are_those_of_this_interpreter() -> None:
    import torch

    installed = installed_versions()
    assert installed["torch"].partition("+")[0] == torch.__version__.partition("+")[0]  # PyPI's build names no CUDA
    assert "ddtree" in installed
    assert all(name == name.lower() and "_" not in name for name in installed)
