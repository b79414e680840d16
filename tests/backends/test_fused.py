"""The fused kernel on a CPU: its cases in Triton's interpreter, and what is refused without one."""

import importlib.util
import os
import re
import subprocess
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from ddtree.backends import fused
from ddtree.backends.fused import launch
from ddtree.retrieve import compile_retrieve
from ddtree.sampling import SamplingParams
from ddtree.tree import DraftTree
from ddtree.verify import BackendUnavailableError, verify_tree
from wording import names, tells

HERE = Path(__file__).parent
FORK = DraftTree.from_parents([[9, 3, 5, 2]], [[-1, 0, 0, 1]], [[0.0, -0.5, -1.0, -0.9]])


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_cases_in_the_interpreter() -> None:
    """In a process of its own: Triton reads TRITON_INTERPRET when it is imported, and other tests may want a GPU."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", HERE / "interpreted" / "fused_cases.py"],
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(HERE.parent), "PYTHONWARNINGS": "ignore"},
        cwd=HERE.parent.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert re.search(r"\d+ passed", done.stdout)
    assert "skipped" not in done.stdout


def test_asked_for_by_name_on_a_cpu_it_is_an_error_that_names_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    probs = torch.full((1, 4, 10), 0.1)
    coins, finals = torch.full((1, 4), 0.5), torch.tensor([0.5])
    with pytest.raises(BackendUnavailableError, match=names("fused CUDA cpu")):
        verify_tree(FORK, compile_retrieve(FORK), probs, coins, finals, backend="fused")


def test_missing_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert tells(fused.missing("cuda"), "triton")


def test_parameters_of_requests() -> None:
    sampling = fused.SamplingTensors.from_requests(
        [SamplingParams(9e-6, 7), SamplingParams(0.6, 2**40, 0.95, 0.1)], "cpu"
    )
    assert sampling.temperature.tolist() == [0.0, pytest.approx(0.6)], "greedy is written as 0"
    assert sampling.top_k.tolist() == [7, 2**31 - 1]
    assert sampling.top_p.tolist() == [1.0, pytest.approx(0.95)]
    assert sampling.min_p.tolist() == [0.0, pytest.approx(0.1)]
    with pytest.raises(ValueError, match=names("SamplingTensors.top_k torch.int64 [1] torch.int32 [1]")):
        fused.SamplingTensors(torch.ones(1), torch.ones(1, dtype=torch.int64), torch.ones(1), torch.zeros(1))


def test_parameters_are_kept_by_value_whatever_list_brings_them() -> None:
    cpu = torch.device("cpu")
    batch = [SamplingParams(0.6)] * 3
    alike = launch.uploaded(batch, cpu)
    assert launch.uploaded([SamplingParams(0.6)] * 3, cpu) is alike, "nothing is uploaded twice"
    assert launch.uploaded(batch[:2], cpu).temperature.shape == (2,)
    batch[1] = SamplingParams(0.8, 5)
    apart = launch.uploaded(batch, cpu)
    assert apart.temperature.tolist() == pytest.approx([0.6, 0.8, 0.6])
    assert apart.top_k.tolist() == [0, 5, 0]
    assert launch.uploaded(list(batch), cpu) is apart
    assert launch.uploaded([], cpu).temperature.shape == (0,)


def test_what_the_kernel_cannot_read_is_refused() -> None:
    tables, coins, finals = compile_retrieve(FORK), torch.full((1, 4), 0.5), torch.tensor([0.5])
    one = fused.SamplingTensors.from_requests([SamplingParams()], "cpu")
    two = fused.SamplingTensors.from_requests([SamplingParams()] * 2, "cpu")
    with pytest.raises(ValueError, match=names("logits torch.float64 float32 bfloat16 float16")):
        fused.sample(FORK, tables, torch.zeros(1, 4, 10).double(), one, coins, finals)
    with pytest.raises(ValueError, match=names("sampling 2 tree 1")):
        fused.sample(FORK, tables, torch.zeros(1, 4, 10), two, coins, finals)
    with pytest.raises(ValueError, match=names("status torch.int64 [1] torch.int32 [1] contiguous")):
        fused.sample(FORK, tables, torch.zeros(1, 4, 10), one, coins, finals, status=torch.zeros(1).long())


@pytest.mark.parametrize("capturing", [True, False])
def test_parameters_live_as_long_as_a_graph_that_reads_them(capturing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[weakref.ref[torch.Tensor]] = []

    def sample(*arguments: object, status: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
        if status is not None:
            status.zero_()
        read.append(weakref.ref(arguments[3].temperature))  # type: ignore[attr-defined]
        return (torch.zeros(1), torch.zeros(1), torch.zeros(1), torch.zeros(1))

    monkeypatch.setattr(launch, "sample", sample)
    monkeypatch.setattr(launch, "_capturing", lambda _device: capturing)
    monkeypatch.setattr(launch, "_IN_GRAPHS", {})
    tables, coins, finals = compile_retrieve(FORK), torch.full((1, 4), 0.5), torch.tensor([0.5])
    launch.sample_requests(FORK, tables, torch.zeros(1, 4, 10), [SamplingParams(0.123)], coins, finals)
    for other in range(100):
        launch.uploaded([SamplingParams(1.0 + other)], torch.device("cpu"))
    assert (read[0]() is not None) is capturing


def test_status_is_not_given_up_while_a_kernel_may_write_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between launch and wait: the memory is the host's, and torch would hand it out again at once."""
    events: list[str] = []
    empty = torch.empty

    class Status:
        def __del__(self) -> None:
            events.append("given up")

    def sample(*_: object, status: object) -> None:
        events.append("launched")
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "sample", sample)
    monkeypatch.setattr(launch, "_capturing", lambda _device: False)
    monkeypatch.setattr(launch, "uploaded", lambda *_: None)
    monkeypatch.setattr(torch, "empty", lambda *a, **k: Status() if "pin_memory" in k else empty(*a, **k))
    stream = SimpleNamespace(synchronize=lambda: events.append("waited"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _device: stream)
    logits = SimpleNamespace(dtype=torch.float32, device=torch.device("cuda", 0), is_cuda=True)
    tables, coins, finals = compile_retrieve(FORK), torch.full((1, 4), 0.5), torch.tensor([0.5])
    with pytest.raises(KeyboardInterrupt):
        launch.sample_requests(FORK, tables, logits, [SamplingParams()], coins, finals)  # type: ignore[arg-type]
    assert events[:2] == ["launched", "waited"]
