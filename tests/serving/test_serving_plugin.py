"""Registration: the pinned release and its signatures or nothing, and hooks that mind their own algorithm only."""

import importlib
import importlib.metadata
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import toy_sglang as toy
from ddtree.kernels.round_ops import mask_cells
from ddtree.serving.compat import (
    PINNED,
    REQUIRED_SYMBOLS,
    IncompatibleSGLangError,
    RequiredSymbol,
    check_release,
    check_signatures,
)
from wording import names


def test_the_pinned_release_passes() -> None:
    check_release(lambda _: PINNED)


def test_another_release_is_refused_with_both_numbers() -> None:
    with pytest.raises(IncompatibleSGLangError, match=names("sglang 0.5.23 0.5.16")):
        check_release(lambda _: "0.5.23")


def test_no_release_is_refused() -> None:
    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    with pytest.raises(IncompatibleSGLangError, match="not installed"):
        check_release(absent)


def test_the_entry_point_leads_to_the_function_that_sglang_calls() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    entry = importlib.metadata.EntryPoint(
        "ddtree", project["entry-points"]["sglang.srt.plugins"]["ddtree"], "sglang.srt.plugins"
    )
    assert entry.load() is importlib.import_module("ddtree.serving.plugin").register


@pytest.fixture
def a_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("a_serving_module")
    module.called = lambda one, two: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_serving_module", module)
    return module


@pytest.mark.usefixtures("a_module")
def test_signatures_are_compared_by_their_parameters() -> None:
    check_signatures(
        (RequiredSymbol("a_serving_module.called", ("one", "two")), RequiredSymbol("a_serving_module.called"))
    )
    with pytest.raises(IncompatibleSGLangError, match=names("called (one, two) (one)")):
        check_signatures((RequiredSymbol("a_serving_module.called", ("one",)),))
    with pytest.raises(IncompatibleSGLangError, match=names("a_serving_module.gone")):
        check_signatures((RequiredSymbol("a_serving_module.gone"),))
    with pytest.raises(IncompatibleSGLangError, match="no_such_package"):
        check_signatures((RequiredSymbol("no_such_package.name"),))


def test_the_table_names_each_place_once() -> None:
    paths = [one.path for one in REQUIRED_SYMBOLS]
    assert len(set(paths)) == len(paths)
    assert all(path.startswith("sglang.") for path in paths)


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    toy.install(monkeypatch)
    yield importlib.import_module("ddtree.serving.algorithm")
    toy.forget()


def server(monkeypatch: pytest.MonkeyPatch, algorithm: str | None) -> SimpleNamespace:
    arguments = SimpleNamespace(speculative_algorithm=algorithm, speculative_num_draft_tokens=17)
    monkeypatch.setattr(sys.modules["sglang.srt.runtime_context"], "get_server_args", lambda: arguments)
    return arguments


def test_a_verify_graph_gets_a_mask_under_ddtree_alone(hooks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server(monkeypatch, "DDTREE")
    assert hooks.use_verify_mask(lambda backend: (backend, False), "triton") == ("triton", True)
    server(monkeypatch, "DFLASH")
    assert hooks.use_verify_mask(lambda backend: (backend, False), "triton") == ("triton", False)


def test_rows_are_widened_for_two_verify_widths(hooks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hooks.widen_rows(21, server(monkeypatch, "ddtree")) == 38
    assert hooks.widen_rows(21, server(monkeypatch, "DFLASH")) == 21
    assert hooks.widen_rows(21, server(monkeypatch, None)) == 21


def test_a_request_is_validated_by_ddtree_or_by_sglang(hooks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = SimpleNamespace(return_logprob=True, sampling_params=None)
    server(monkeypatch, "DDTREE")
    assert "logprobs" in hooks.validate_request(lambda *_: None, refused, True)
    server(monkeypatch, "DFLASH")
    assert hooks.validate_request(lambda *_: "stock", refused, True) == "stock"


def test_the_mask_buffer_holds_trees_behind_a_full_context(hooks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def backend() -> Any:
        mask = torch.zeros(2 * 17 * 64, dtype=torch.uint8)
        return SimpleNamespace(cuda_graph_custom_mask=mask, max_context_len=64, num_draft_tokens=17)

    server(monkeypatch, "DDTREE")
    widened = backend()
    hooks.widen_mask(None, widened, 2, 34)
    reserved = 64 + 2 * 17  # of a request whose text fills the context
    assert len(widened.cuda_graph_custom_mask) >= mask_cells(2 * reserved, 2, 17)
    drafter = SimpleNamespace(cuda_graph_custom_mask=None)
    hooks.widen_mask(None, drafter, 2, 34)
    server(monkeypatch, "DFLASH")
    stock = backend()
    hooks.widen_mask(None, stock, 2, 34)
    assert stock.cuda_graph_custom_mask.numel() == 2 * 17 * 64


def test_a_drafter_without_graphs_keeps_its_dtype(hooks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    embeddings = torch.ones(2, 3, dtype=torch.float16)
    cast = {"input_embeds": embeddings.bfloat16(), "get_embedding": True}
    drafter, target = (SimpleNamespace(is_draft_worker=is_draft) for is_draft in (True, False))
    forward_batch = SimpleNamespace(input_embeds=embeddings)
    server(monkeypatch, "DDTREE")
    kept = hooks.keep_embedding_dtype(cast, drafter, forward_batch, None)
    assert kept["input_embeds"] is embeddings
    assert kept["get_embedding"]
    assert hooks.keep_embedding_dtype(cast, target, forward_batch, None) is cast
    server(monkeypatch, "DFLASH")
    assert hooks.keep_embedding_dtype(cast, drafter, forward_batch, None) is cast


def test_a_graph_captured_without_the_mask_is_an_error(hooks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def runner(mask: Any, is_draft: bool = False) -> Any:
        backend = SimpleNamespace(cuda_graph_custom_mask=MASK, forward_metadata=SimpleNamespace(custom_mask=mask))
        return SimpleNamespace(attn_backend=backend, model_runner=SimpleNamespace(is_draft_worker=is_draft))

    MASK = torch.zeros(1)
    server(monkeypatch, "DDTREE")
    hooks.check_captured_mask(None, runner(MASK))
    hooks.check_captured_mask(None, runner(None, is_draft=True))
    with pytest.raises(RuntimeError, match=names("mask")):
        hooks.check_captured_mask(None, runner(None))
    server(monkeypatch, "DFLASH")
    hooks.check_captured_mask(None, runner(None))


def test_the_algorithm_has_what_the_scheduler_calls(hooks: Any) -> None:
    algorithm = importlib.import_module("ddtree.serving.algorithm").DDTreeAlgorithm("DDTREE", None)
    assert algorithm.is_dflash()
    assert algorithm.is_dflash_family()
    assert algorithm.supports_target_verify_for_draft()
    assert not algorithm.need_topk()
    assert not algorithm.carries_draft_hidden_states()
    assert callable(algorithm.create_future_map)
