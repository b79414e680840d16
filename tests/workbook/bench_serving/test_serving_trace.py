"""A traced reply on made-up traces: only the later rounds, kernels by what they do, and what cannot be traced."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ddtree
import pytest
from ddtree.workbook.bench_serving import trace
from ddtree.workbook.bench_serving.client import RefusedError
from ddtree.workbook.bench_serving.trace import KINDS, Kernel, kernels_in, main, mean_round, table_lines
from wording import names, tells

ROUND = ("select_nodes", "nvjet_tst_64", "attend", "combine_splits", "FusedAddRMSNorm", "fused_verify", "Memcpy DtoD")
PREFILL = ("nvjet_tst_64",) * 9 + ("_fwd_kernel",) * 9


def events(rounds: int) -> list[dict[str, Any]]:
    """A slow prefill, then rounds of 100 us, the first of them slower; each kernel takes a tenth of its place."""
    at, made = 0.0, []
    names = [*PREFILL, *(name for _ in range(rounds) for name in ROUND)]
    for place, name in enumerate(names):
        early = place < len(PREFILL) + 2 * len(ROUND)
        cat = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
        made.append({"ph": "X", "cat": cat, "name": name, "ts": at, "dur": 70.0 if early else 5.0})
        at += 500.0 if early else 100.0 / len(ROUND)
    host = {"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "ts": 0.0, "dur": 9e9}
    return [{"ph": "M", "name": "process_name"}, host, *reversed(made)]


def written(folder: Path, rounds: int) -> Path:
    path = folder / "1-TP-0.trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events(rounds)}).encode()))
    return path


@pytest.mark.parametrize("under_way", [0, 1, 2])
def test_a_round_is_the_mean_of_the_later_half(tmp_path: Path, under_way: int) -> None:
    found = mean_round(kernels_in(written(tmp_path, 12 + under_way)), 12)
    assert found.elapsed == pytest.approx(0.1)
    us = {kind: round(1e3 * ms, 6) for kind, ms in found.kinds.items()}
    assert us == {
        "attention": 10.0,
        "matrix products": 5.0,
        "norm, rope, cache": 5.0,
        "tree": 10.0,
        "copies and rest": 5.0,
    }
    assert found.busy == pytest.approx(0.035)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("_fwd_kernel", "attention"),
        ("_fwd_grouped_kernel_stage1", "attention"),
        ("nvjet_sm90_tst_8x64_64x16_4x1_v_bz_TNN", "matrix products"),
        ("void cublasLt::splitKreduce_kernel<32, 16>", "matrix products"),
        ("void flashinfer::norm::RMSNormKernel<8u>", "norm, rope, cache"),
        ("void (anonymous namespace)::store_kvcache<384l>", "norm, rope, cache"),
        ("fused_verify", "tree"),
        ("a_walker", "copies and rest"),
        ("void at::native::elementwise_kernel<128, 4>", "copies and rest"),
    ],
)
def test_kernels_are_sorted_by_what_they_do(name: str, kind: str) -> None:
    assert Kernel(name, 0.0, 1.0).kind == kind


def test_the_tree_s_kernels_are_the_project_s() -> None:
    """A kernel that is renamed would be counted among the rest."""
    sources = "".join(path.read_text() for path in Path(ddtree.__file__).parent.rglob("*.py"))
    kernels = set(re.findall(r"@triton\.jit(?:\(.*\))?\ndef (\w+)", sources))
    named = [*re.findall(r"\w+", KINDS["tree"]), "attend", "combine_splits"]
    assert set(named) <= kernels


def test_a_trace_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=names("40")):
        mean_round(kernels_in(written(tmp_path, 12)), 40)


class FakeClient:
    """Writes a trace of what it answered between start and stop, unless `leaves` is False."""

    leaves = True

    def __init__(self, url: str) -> None:
        self.url = url

    def request(self, prompt: str, **sampling: Any) -> SimpleNamespace:
        return SimpleNamespace(rounds=12, tokens=64)

    def post(self, path: str, body: dict[str, Any]) -> None:
        if "refuses" in self.url:
            raise RefusedError(f"{self.url}{path} answered 500: not now")
        if path == "/start_profile":
            assert body["activities"] == ["GPU"]
            self.folder = Path(body["output_dir"])
        elif self.leaves:
            written(self.folder, 12)

    def close(self) -> None:
        pass


def test_servers_are_traced_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trace, "Client", FakeClient)
    assert main(["plain=http://a", "tree=http://b"]) == 0
    head, plain, tree = capsys.readouterr().out.splitlines()
    assert head.split("  ")[0] == "ms a round"
    assert all(kind in head for kind in KINDS)
    assert plain.split() == ["plain", "0.01", "0.01", "0.01", "0.01", "0.01", "0.04", "0.10"]
    assert tree.split()[0] == "tree"
    assert len(set(map(len, table_lines({"a": mean_round(_some(), 12), "bcd": mean_round(_some(), 12)})))) == 1


def _some() -> list[Kernel]:
    return [Kernel(name, 10.0 * place, 5.0) for place, name in enumerate(ROUND * 12)]


def test_what_cannot_be_traced_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(trace, "Client", FakeClient)
    assert main(["plain=http://refuses"]) == 1
    assert tells(capsys.readouterr().err, "http://refuses/start_profile 500 not now")
    monkeypatch.setattr(FakeClient, "leaves", False)
    assert main(["plain=http://far"]) == 1
    assert tells(capsys.readouterr().err, "http://far")
    assert main([]) == main(["http://a"]) == 2
    assert "NAME=URL" in capsys.readouterr().err
