"""Published failures around the kernel's package: it is imported late, in one place, and believed after a trial."""

import ast
import builtins
import importlib.metadata
from pathlib import Path

import ddtree
import fake_sgl_kernel
import pytest
import torch
from ddtree.backends import registry, sgl
from ddtree.verify import BackendUnavailableError, backend_report
from wording import tells

SOURCES = sorted(Path(ddtree.__file__).parent.rglob("*.py"))


def test_d01_d05_the_package_is_imported_where_it_is_called_and_never_at_module_level() -> None:
    importing, naming = [], []
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        found = [node for node in imports if "sgl_kernel" in ast.unparse(node)]
        assert not set(found) & set(tree.body), path.name
        importing += [path.name] * bool(found)
        naming += [path.name] * ("retrive_" in text)
    calling = ["baselines.py", "sgl.py"]  # the stock pipeline that speed is compared with, and the backend
    assert sorted(importing) == sorted(naming) == calling, "the op's own spelling stands where the op is called"


def test_d01_failed_import_is_a_reason_and_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_libraries(name: str, *rest: object, real: object = builtins.__import__) -> object:
        if name == "sgl_kernel":
            raise ImportError("Could not load any common_ops library: libnvrtc.so.12: cannot open shared object file")
        return real(name, *rest)  # type: ignore[operator]

    monkeypatch.setattr(sgl, "missing", lambda _device: None)
    monkeypatch.setattr(builtins, "__import__", without_libraries)
    registry.self_test.cache_clear()
    try:
        (status,) = [status for status in backend_report("cpu") if status.name == "sgl"]
        with pytest.raises(BackendUnavailableError, match="libnvrtc"):
            registry.resolve("sgl", torch.device("cpu"))
    finally:
        registry.self_test.cache_clear()
    assert not status.usable
    assert "libnvrtc.so.12" in status.reason, "the real reason, in the last words"
    assert torch.__version__ in status.reason


def test_d02_the_torch_here_and_the_torch_wanted_are_both_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    reason = str(sgl.missing("cuda"))
    assert tells(reason, "sglang-kernel 0.4.5 2.11")
    assert tells(reason, torch.__version__)


def test_d02_two_distributions_over_one_module_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: object())
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "0.3.21")
    assert tells(sgl.missing("cuda"), "sgl-kernel sglang-kernel")

    def only_one(name: str) -> str:
        if name == "sgl-kernel":
            raise importlib.metadata.PackageNotFoundError(name)
        return "0.4.5"

    monkeypatch.setattr(importlib.metadata, "version", only_one)
    assert sgl.missing("cuda") is None


def test_d05_the_right_english_spelling_is_not_the_op_s() -> None:
    with pytest.raises(TypeError, match="retrieve_index"):
        fake_sgl_kernel.tree_speculative_sampling_target_only(retrieve_index=torch.zeros(1, 1))
