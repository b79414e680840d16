"""Attention of a verify: the kernel's values, which calls it takes over, and which targets are left to SGLang."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import toy_sglang as toy
from attention_cases import Case, a_case, right
from ddtree.kernels.tree_attention import num_splits
from interpreted import printed_by
from wording import names, tells

HEADS, KV_HEADS, SIZE = 6, 2, 8


def test_the_kernel_s_values_are_a_softmax_s() -> None:
    assert printed_by("attention_interpreted.py") == "equal in 5 shapes, in few parts and many"


@pytest.mark.parametrize(("programs", "parts"), [(1, 16), (37, 16), (38, 8), (96, 4), (150, 4), (151, 2), (9000, 2)])
def test_more_programs_a_part_make_fewer_parts(programs: int, parts: int) -> None:
    assert num_splits(programs) == parts


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    toy.install(monkeypatch)
    yield importlib.import_module("ddtree.serving.attention_backend")
    toy.forget()


class KeptRows:
    """A pool of one layer, as SGLang's writes and reads it."""

    def __init__(self, case: Case) -> None:
        self.keys, self.values = case.pool

    def set_kv_buffer(self, layer: Any, place: Any, k: torch.Tensor, v: torch.Tensor) -> None:
        self.keys[place.loc], self.values[place.loc] = k, v

    def get_key_buffer(self, layer_id: int) -> torch.Tensor:
        return self.keys

    def get_value_buffer(self, layer_id: int) -> torch.Tensor:
        return self.values


def a_runner(case: Case) -> Any:
    metadata = SimpleNamespace(
        kv_indptr=case.prefix[0], kv_indices=case.prefix[1], custom_mask=case.sight[0], mask_indptr=case.sight[1],
        swa_out_cache_loc=None, out_cache_loc_full_physical=None,
    )  # fmt: skip
    layer = toy.AttentionLayer(HEADS, KV_HEADS, SIZE)
    return SimpleNamespace(
        attn_backend=toy.TritonBackend(KeptRows(case), metadata), model=torch.nn.Sequential(layer),
        dtype=torch.bfloat16, kv_cache_dtype=torch.bfloat16,
    )  # fmt: skip


def verifying(case: Case) -> Any:
    return SimpleNamespace(forward_mode=toy.Mode.TARGET_VERIFY, out_cache_loc=free_slots(case))


def free_slots(case: Case) -> torch.Tensor:
    """One for each node, of those that no prefix holds."""
    taken = set(case.prefix[1].tolist())
    return torch.tensor([slot for slot in range(len(case.pool[0])) if slot not in taken][: len(case.q)])


def test_a_verify_is_taken_over_and_all_else_is_not(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    case = a_case(3, [9, 13], most_nodes=5, heads=HEADS, kv_heads=KV_HEADS, size=SIZE)
    nodes, runner, asked = case.visible.shape[1], a_runner(case), []

    def attention(q: Any, k: Any, v: Any, pool: Any, prefix: Any, sight: Any, **told: Any) -> torch.Tensor:
        asked.append(told)
        found = Case(q, k, v, pool, prefix, sight, case.visible, told["scale"])
        return right(found).to(q.dtype)

    monkeypatch.setattr(module, "tree_attention", attention)
    assert module.choose_attention("auto", runner, nodes) == "tree"
    forward, layer = runner.attn_backend.forward_extend, runner.model[0]
    q, k, v = (tensor.flatten(1) for tensor in (case.q, case.k, case.v))
    answer = forward(q, case.k, case.v, layer, verifying(case))
    torch.testing.assert_close(answer.view_as(case.q), right(case).float())
    assert asked == [{"nodes": nodes, "scale": SIZE**-0.5}]
    assert torch.equal(case.pool[0][free_slots(case)], case.k), "the nodes' keys are kept"

    extend = SimpleNamespace(forward_mode=toy.Mode.EXTEND)
    filled = verifying(case)
    filled._attn_output = torch.empty_like(q)
    for call in (
        lambda: forward(q, k, v, layer, extend),
        lambda: forward(q, None, None, layer, verifying(case)),
        lambda: forward(q, k, v, layer, filled),
        lambda: forward(q, k, v, layer, verifying(case), sinks=torch.ones(HEADS)),
    ):
        assert call()[0] == "stock"
    assert len(asked) == 1


def changed(place: str, **values: Any) -> Any:
    runner = a_runner(a_case(1, [4], most_nodes=3, heads=HEADS, kv_heads=KV_HEADS, size=SIZE))
    owner = {"runner": runner, "backend": runner.attn_backend, "layer": runner.model[0]}[place]
    for name, value in values.items():
        setattr(owner, name, value)
    return runner


@pytest.mark.parametrize(
    ("place", "values", "reason"),
    [
        ("runner", {"attn_backend": SimpleNamespace()}, "SimpleNamespace TritonAttnBackend"),
        ("runner", {"kv_cache_dtype": torch.float8_e5m2}, "float8_e5m2 torch.bfloat16"),
        ("runner", {"model": torch.nn.Sequential()}, "RadixAttention"),
        ("backend", {"enable_deterministic": True}, "deterministic"),
        ("backend", {"dcp_size": 2}, "contexts"),
        ("layer", {"attn_type": toy.AttentionKind.ENCODER_ONLY}, "layer 0 decoder"),
        ("layer", {"v_head_dim": 4}, "8 4"),
        ("layer", {"logit_cap": 50.0}, "caps"),
        ("layer", {"sliding_window_size": 128}, "windows"),
        ("layer", {"k_scale": torch.ones(1)}, "keys"),
    ],
)
def test_other_targets_are_left_to_sglang_with_the_reason(
    module: Any, caplog: pytest.LogCaptureFixture, place: str, values: dict[str, Any], reason: str
) -> None:
    runner = changed(place, **values)
    with caplog.at_level("INFO"):
        assert module.choose_attention("auto", runner, 4) == "sglang"
    assert tells(caplog.text, reason)
    with pytest.raises(ValueError, match=names(f"DDTREE_ATTENTION tree {reason}")):
        module.choose_attention("tree", runner, 4)


def test_sglang_s_own_kernel_is_left_where_it_is_asked_for(module: Any) -> None:
    runner = changed("runner")
    assert module.choose_attention("sglang", runner, 4) == "sglang"
    assert runner.attn_backend.forward_extend()[0] == "stock"
