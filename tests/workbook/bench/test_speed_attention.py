"""Attention next to a baseline on a toy: layers in SGLang's layout, a row for every size, and what was skipped."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import torch
from ddtree.workbook.bench import kernels
from ddtree.workbook.bench.inputs import ATTENTION_VOCAB, LAYERS, Sizes, make_layers
from ddtree.workbook.bench.kernels import Setup
from ddtree.workbook.bench.tables import attention_table

CPU = torch.device("cpu")
SIZES: dict[str, Any] = {"depth": 3, "topk_cap": 4}


def setup() -> Setup:
    return Setup(CPU, torch.float32, repeats=2, seed=1, bytes_per_s=1e9, say=lambda _: None)


def test_layers_share_trees_and_slots_and_nothing_else() -> None:
    layers = make_layers(Sizes(ATTENTION_VOCAB, 2, 6, 3, 4), (4, 2, 8), 5, seed=3, device=CPU)
    assert len(layers) == LAYERS
    one, other = layers[:2]
    assert one.q.shape == (2 * 7, 4, 8)
    assert one.k.shape == one.v.shape == (2 * 7, 2, 8)
    assert one.q.stride(0) == (4 + 2 + 2) * 8, "rows of a fused projection"
    assert sorted(one.indices.tolist()) == list(range(2 * 5))
    assert one.indptr.tolist() == [0, 5, 10]
    assert one.rows.tolist() == [0, 7, 14]
    assert one.mask is other.mask
    assert not torch.equal(one.pool[0], other.pool[0])
    for request in range(2):
        start = int(one.mask_starts[request])
        sees = one.mask[start : start + 7 * 12].view(7, 12)[:, 5:]
        assert (sees.diagonal() == 1).all(), "a node sees itself"
        assert (sees[:, 0] == 1).all(), "and its root"
        assert (sees.triu(1) == 0).all(), "and none behind it"


def test_a_cpu_has_neither_kernel_and_says_why() -> None:
    made = setup()
    assert kernels.measure_attention([1], [4], made, **SIZES) == []
    assert [entry["what"] for entry in made.skipped] == [kernels.OURS, kernels.SGLANG]
    assert all("CUDA tensors" in entry["why"] for entry in made.skipped)


def test_each_size_is_timed_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int]] = []

    def stand_in(name: str) -> kernels.Attention:
        return lambda layer: seen.append((name, len(layer.q)))

    both = {kernels.OURS: stand_in("ours"), kernels.SGLANG: stand_in("theirs")}
    monkeypatch.setattr(kernels, "attention_kernels", lambda _, skipped: both)
    made = setup()
    rows = kernels.measure_attention([1, 2], [4], made, heads={"toy": (4, 2, 8)}, prefixes=[6], **SIZES)
    assert made.skipped == []
    frame = pd.DataFrame(rows)
    assert len(frame) == 4 == len(frame.drop_duplicates(["attention", "batch"]))
    assert set(seen) == {("ours", 5), ("ours", 10), ("theirs", 5), ("theirs", 10)}
    ours, theirs = (frame[frame["attention"] == name].set_index("batch") for name in both)
    assert (ours["over_ours"] == 1).all()
    assert theirs["over_ours"].tolist() == pytest.approx((theirs["us"] / ours["us"]).tolist())
    # 5 nodes of 4 heads, read and written; keys and values of 5 nodes and 6 tokens, 2 heads of 8; two bytes each.
    assert ours["floor_us"].iloc[0] == pytest.approx(2 * (2 * 5 * 4 * 8 + 2 * 11 * 2 * 8) / 1e9 * 1e6)
    assert "over ours" in attention_table(frame).to_html()
