"""Python, processor, GPU, backends and browser: each situation that differs to a user has its own sentence."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from ddtree.models import zoo
from ddtree.verify import BackendStatus
from ddtree.workbook.doctor.checks import (
    Gpu,
    Processor,
    examine_backends,
    examine_browser,
    examine_gpu,
    examine_processor,
    this_gpu,
    this_processor,
)
from ddtree.workbook.doctor.packages import examine_python
from packaging.specifiers import SpecifierSet
from wording import tells

REFERENCE = BackendStatus("reference", True, "runs anywhere")
SGL_NOT_HERE = BackendStatus("sgl", False, "sgl_kernel is not installed")
SGL = BackendStatus("sgl", True, "its self-test gave the reference's tokens")


@pytest.mark.parametrize(("version", "state"), [("3.11.0", "ok"), ("3.13.2", "ok"), ("3.10.13", "missing")])
def test_python(version: str, state: str) -> None:
    finding = examine_python(version, ".venv/bin/python", SpecifierSet(">=3.11"))
    assert finding.state == state
    assert version in finding.detail


def test_idle_processor_with_bf16_units_is_in_order() -> None:
    findings = examine_processor(Processor(("amx_bf16",), physical_cores=4, torch_threads=4, load=0.1))
    assert [finding.state for finding in findings] == ["ok", "ok"]
    assert "bfloat16" in findings[0].detail


def test_processor_without_bf16_units_computes_in_float32() -> None:
    units, _ = examine_processor(Processor((), physical_cores=1, torch_threads=1, load=0.0))
    assert units.state == "warning"
    assert tells(units.detail, "1 float32")


@pytest.mark.parametrize(
    ("threads", "load", "words"),
    [(8, 0.0, "8 4"), (4, 3.5, "3.5 4")],
)
def test_crowded_cores_are_a_warning(threads: int, load: float, words: str) -> None:
    _, use = examine_processor(Processor(("amx_bf16",), physical_cores=4, torch_threads=threads, load=load))
    assert use.state == "warning"
    assert tells(use.detail, words)


def test_units_are_those_that_decide_the_dtype_of_a_model() -> None:
    assert bool(this_processor(torch_threads=1).bf16_units) == (zoo._best_dtype("cpu") == "bfloat16")


@pytest.mark.parametrize(
    ("gpu", "state", "words"),
    [
        (Gpu(True, "13.0", ("H200",), (139.8,)), "ok", "H200 140 GiB 13.0"),
        (Gpu(False, None, (), ()), "warning", "CPU"),
        (Gpu(True, None, (), ()), "warning", "CPU build"),
        (Gpu(True, "13.0", (), ()), "warning", "device"),
    ],
)
def test_gpu(gpu: Gpu, state: str, words: str) -> None:
    finding = examine_gpu(gpu)
    assert finding.state == state
    assert tells(finding.detail, words)


@pytest.mark.parametrize("devices", [0, 2])
def test_gpu_facts_are_torchs(devices: int) -> None:
    cuda = SimpleNamespace(
        is_available=lambda: devices > 0,
        device_count=lambda: devices,
        get_device_properties=lambda device: SimpleNamespace(name=f"card {device}", total_memory=(device + 1) * 2**30),
    )
    gpu = this_gpu(SimpleNamespace(cuda=cuda, version=SimpleNamespace(cuda="13.0")))
    assert gpu.names == ("card 0", "card 1")[:devices]
    assert gpu.memory_gib == (1.0, 2.0)[:devices]


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
    finding = examine_backends(device, report)
    assert (finding.subject, finding.state) == (f"verify on {device}", state)
    assert all(status.reason in finding.detail for status in report)


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
    finding = examine_browser()
    assert finding.state == state
    assert tells(finding.detail, words)
