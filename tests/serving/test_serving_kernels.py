"""Kernels of a serving round in a process of their own, since Triton's interpreter is chosen at import."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def test_kernels_give_what_torch_operations_give() -> None:
    pytest.importorskip("triton")
    folders = f"{HERE.parent}:{HERE.parent}/backends/interpreted"
    run = subprocess.run(
        [sys.executable, str(HERE / "kernels_interpreted.py")],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": folders},
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.strip() == "equal"
