"""What a loaded target must have, over stand-ins for SGLang's: a right one is read, any other is refused."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import toy_sglang as toy
from wording import names

HEAD = torch.arange(12.0).view(4, 3)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    toy.install(monkeypatch)
    yield importlib.import_module("ddtree.serving.worker")
    toy.forget()


def a_head(weight: Any, **shard: int) -> Any:
    head = SimpleNamespace(weight=weight)
    if shard:
        head.shard_indices = SimpleNamespace(**shard)
    return SimpleNamespace(lm_head=head)


def test_a_head_is_read_without_its_padding(module: Any) -> None:
    assert module.lm_head_weight(a_head(HEAD)) is HEAD
    padded = a_head(HEAD, num_added_elements=0, org_vocab_start_index=0, num_org_elements=3)
    assert torch.equal(module.lm_head_weight(padded), HEAD[:3])


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (SimpleNamespace(), "lm_head"),
        (a_head(HEAD.to(torch.int8)), "lm_head"),
        (a_head(HEAD, num_added_elements=1, org_vocab_start_index=0, num_org_elements=3), "lm_head added"),
        (a_head(HEAD, num_added_elements=0, org_vocab_start_index=2, num_org_elements=2), "lm_head split"),
    ],
)
def test_other_heads_are_refused(module: Any, model: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=names(reason)):
        module.lm_head_weight(model)


def a_runner(*values: int, **changed: Any) -> Any:
    """Layers whose keys have 6 numbers a token, and whose values as many as given."""
    pool = toy.Pool([torch.zeros(5, 6) for _ in values], [torch.zeros(5, size) for size in values])
    return SimpleNamespace(**{"sliding_window_size": None, "token_to_kv_pool": pool} | changed)


def test_rows_of_one_size_are_measured(module: Any) -> None:
    assert module.kv_row_bytes(a_runner(6, 6)) == 6 * 4


@pytest.mark.parametrize(
    ("runner", "reason"),
    [
        (a_runner(6, 4), "keys values"),
        (a_runner(6, sliding_window_size=128), "sliding window"),
        (a_runner(6, token_to_kv_pool=SimpleNamespace(use_hnd=False)), "SimpleNamespace"),
        (a_runner(6, token_to_kv_pool=toy.Pool([HEAD], [HEAD], use_hnd=True)), "HND"),
    ],
)
def test_caches_whose_rows_cannot_be_moved_are_refused(module: Any, runner: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=names(reason)):
        module.kv_row_bytes(runner)


def test_graphs_of_another_width_are_refused(module: Any) -> None:
    module.check_captured_width("graphs", None, 9)
    module.check_captured_width("graphs", SimpleNamespace(captured_req_width=9), 9)
    with pytest.raises(RuntimeError, match=names("graphs 4 9")):
        module.check_captured_width("graphs", SimpleNamespace(captured_req_width=4), 9)
