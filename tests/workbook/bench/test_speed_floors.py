"""Roofline bounds are bytes counted by hand over the bandwidth."""

import pytest
import torch
from ddtree.workbook.bench.inputs import Sizes, make_inputs
from ddtree.workbook.bench.kernels import Setup, bytes_to_move, measure_bandwidth


def test_bytes_of_each_stage() -> None:
    sizes = Sizes(vocab=100, batch=2, budget=7, depth=3, topk_cap=4)
    inputs = make_inputs(sizes, seed=0, device=torch.device("cpu"), dtype=torch.bfloat16)
    found = {
        stage: bytes_to_move(stage, inputs, key_len=20, visited_rows=5)
        for stage in ("top-k", "build", "compile", "mask", "sample", "plan")
    }
    assert found == {
        "top-k": 2 * 3 * 100 * 2,
        "build": 2 * 3 * 100 * 2 + 16 * (8 + 8 + 8 + 4),
        "compile": 16 * (8 + 4) + 16 * 3 * 8,
        "mask": 16 * 8 + 16 * 20 * 2,
        "sample": 5 * 100 * 2,
        "plan": 16 * 4 + 3 * 2 * 4 * 8,
    }


def test_the_bound_is_bytes_over_bandwidth() -> None:
    setup = Setup(torch.device("cpu"), torch.float32, repeats=2, seed=0, bytes_per_s=2e9)
    assert setup.bound_us(4000) == pytest.approx(2.0)


def test_a_copy_counts_what_is_read_and_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddtree.workbook.bench.kernels.COPIED_BYTES", {"cpu": 1000})
    monkeypatch.setattr("ddtree.workbook.bench.kernels.interleaved", lambda benchmarks, **_: {"copy": [2.0, 4.0, 3.0]})
    assert measure_bandwidth(torch.device("cpu")) == pytest.approx(2000 / 3e-6)
