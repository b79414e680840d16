"""Scripts of kernels' cases, each in a process of its own, since Triton's interpreter is chosen at import."""

import os
import subprocess
import sys
from pathlib import Path

import ddtree
import pytest

HERE = Path(__file__).parent


def printed_by(script: str) -> str:
    """What the script of this folder prints; it must end well."""
    pytest.importorskip("triton")
    lib = Path(ddtree.__file__).parents[1]  # the package of this process, wherever another one is installed
    path = f"{lib}:{HERE}:{HERE.parent}:{HERE.parent}/backends/interpreted"
    run = subprocess.run(
        [sys.executable, str(HERE / script)],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"},
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout.strip()
