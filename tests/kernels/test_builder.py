"""The builder's kernels on a CPU: their cases in Triton's interpreter, what fits, and who never meets them."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from ddtree import kernels
from ddtree.tree import build_tree

HERE = Path(__file__).parent


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_cases_in_the_interpreter() -> None:
    """In a process of its own: Triton reads TRITON_INTERPRET when it is imported."""
    cases = HERE / "interpreted" / "builder_cases.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", cases],
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(HERE.parent), "PYTHONWARNINGS": "ignore"},
        cwd=HERE.parent.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert re.search(r"\d+ passed", done.stdout)
    assert "skipped" not in done.stdout


@pytest.mark.parametrize(
    ("vocab", "branch", "fit"),
    [
        (151936, 16, True),
        (151936, 64, True),
        (151936, 65, False),
        (100, 2, True),
        (100, 3, False),
        (129, 2, True),
        (2**20, 4, False),
    ],
)
def test_what_one_program_can_order(vocab: int, branch: int, fit: bool) -> None:
    assert kernels.fits_topk(vocab, branch) is fit


def test_a_cpu_never_calls_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("topk_tokens", "select_nodes", "link_nodes", "tree_mask", "map_accepted"):
        monkeypatch.setattr(kernels, name, lambda *_: pytest.fail("a kernel was called"))
    tree = build_tree(torch.randn(1, 3, 700), torch.zeros(1, dtype=torch.int64), budget=8, topk_cap=4)
    assert tree.sizes.tolist() == [9]
    assert "CUDA" in str(kernels.unavailable_reason("cpu"))
