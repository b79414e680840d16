"""Python, processor, GPU, backends and browser: each situation that differs to a user has its own sentence."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from ddtree.models import zoo
from ddtree.verify import BackendStatus
from ddtree.workbook.doctor.machine_checks import (
    bf16_units,
    check_backends,
    check_browser,
    check_gpu,
    check_processor,
)
from ddtree.workbook.doctor.packages import check_python
from packaging.specifiers import SpecifierSet
from wording import tells

REFERENCE = BackendStatus("reference", True, "runs anywhere")
SGL_NOT_HERE = BackendStatus("sgl", False, "sgl_kernel is not installed")
SGL = BackendStatus("sgl", True, "its self-test gave the reference's tokens")


@pytest.mark.parametrize(("version", "state"), [("3.11.0", "ok"), ("3.13.2", "ok"), ("3.10.13", "missing")])
def test_python(version: str, state: str) -> None:
    result = check_python(version, ".venv/bin/python", SpecifierSet(">=3.11"))
    assert result.state == state
    assert version in result.detail


def test_idle_processor_with_bf16_units_is_in_order() -> None:
    results = check_processor(("amx_bf16",), cores=4, threads=4, load=0.1)
    assert [result.state for result in results] == ["ok", "ok"]
    assert "bfloat16" in results[0].detail


def test_processor_without_bf16_units_computes_in_float32() -> None:
    units, _ = check_processor((), cores=1, threads=1, load=0.0)
    assert units.state == "warning"
    assert tells(units.detail, "1 float32")


@pytest.mark.parametrize(
    ("threads", "load", "words"),
    [(8, 0.0, "8 4"), (4, 3.5, "3.5 4")],
)
def test_crowded_cores_are_a_warning(threads: int, load: float, words: str) -> None:
    _, use = check_processor(("amx_bf16",), cores=4, threads=threads, load=load)
    assert use.state == "warning"
    assert tells(use.detail, words)


def test_units_are_those_that_decide_the_dtype_of_a_model() -> None:
    assert bool(bf16_units()) == (zoo._best_dtype("cpu") == "bfloat16")


@pytest.mark.parametrize(
    ("driver_loaded", "build", "devices", "state", "words"),
    [
        (True, "13.0", 2, "ok", "card 0 140 GiB card 1 140 GiB 13.0"),
        (False, None, 0, "warning", "CPU"),
        (True, None, 0, "warning", "CPU build"),
        (True, "13.0", 0, "warning", "device"),
    ],
)
def test_gpu(driver_loaded: bool, build: str | None, devices: int, state: str, words: str) -> None:
    cuda = SimpleNamespace(
        is_available=lambda: devices > 0,
        device_count=lambda: devices,
        get_device_properties=lambda device: SimpleNamespace(name=f"card {device}", total_memory=140 * 2**30),
    )
    result = check_gpu(SimpleNamespace(cuda=cuda, version=SimpleNamespace(cuda=build)), driver_loaded)
    assert result.state == state
    assert tells(result.detail, words)


@pytest.mark.parametrize(
    ("device", "report", "state"),
    [
        ("cpu", [SGL_NOT_HERE, REFERENCE], "ok"),
        ("cuda", [SGL_NOT_HERE, REFERENCE], "warning"),
        ("cuda", [SGL, REFERENCE], "ok"),
        ("cuda", [SGL_NOT_HERE], "missing"),
    ],
)
def test_backends(device: str, report: list[BackendStatus], state: str) -> None:
    result = check_backends(device, report)
    assert (result.subject, result.state) == (f"verify on {device}", state)
    assert all(status.reason in result.detail for status in report)


@pytest.mark.parametrize(
    ("programs", "named", "state", "words"),
    [
        ([], None, "warning", "PDF"),
        (["chromium"], "absent", "warning", "absent CHROME"),
        (["google-chrome"], None, "warning", "chromedriver"),
        (["chromium", "chromedriver"], None, "ok", "bin/chromium, "),
        (["my-own-chrome", "chromedriver"], "my-own-chrome", "ok", "bin/my-own-chrome, "),
    ],
)
def test_browser(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    programs: list[str],
    named: str | None,
    state: str,
    words: str,
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in programs:
        (folder / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("CHROME", named or "")
    result = check_browser()
    assert result.state == state
    assert tells(result.detail, words)
