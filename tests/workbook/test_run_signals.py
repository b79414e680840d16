"""`ddtree run` under SIGINT, SIGTERM and a killed kernel: the running cell is interrupted, and all is kept."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from ddtree.workbook.params import TreeParams
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from wording import banner, tells

# As 03_live does it, without its models: one line on disk per prompt; an interruption ends the loop, not the run.
MEASURE = """
import json, os, time
from pathlib import Path
from ddtree.workbook.interrupts import stoppable
from ddtree.workbook.records import append_jsonl
from ddtree.workbook.params import TreeParams
params = TreeParams.check(globals())
lines = Path(params.out_dir) / "lines.jsonl"
try:
    with stoppable():
        for prompt in range(100_000):
            append_jsonl(lines, {"prompt": prompt})
            time.sleep(0.02)
except KeyboardInterrupt:
    done = len(lines.read_text().splitlines())
    print("kept", done, flush=True)
"""
DEAF = """
import time
while True:
    try:
        time.sleep(1)
    except BaseException:
        print("deaf", flush=True)
"""
FIGURES = 'print("figures of", done, "prompts")'
END = 'raise RuntimeError(f"{done} of 100000 prompts were measured")'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "ddtree"\n')
    (tmp_path / "notebooks").mkdir()
    defaults = "\n".join(f"{name} = {value!r}" for name, value in TreeParams.defaults().items())
    cells = [
        new_markdown_cell("# A long run"),
        new_code_cell(defaults, metadata={"tags": ["parameters"]}),
        new_code_cell(MEASURE),
        new_code_cell(FIGURES),
        new_code_cell(END),
    ]
    metadata = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}}
    nbformat.write(new_notebook(cells=cells, metadata=metadata), tmp_path / "notebooks" / "01_tree.ipynb")
    return tmp_path


def run_until_measuring(project: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from ddtree.workbook.cli import app; app()", "run", "01_tree", "-o", "out"]
    process = subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = project / "out" / "lines.jsonl"
    deadline = time.monotonic() + 60
    while not (lines.is_file() and lines.read_text().count("\n") >= 3):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the notebook never began to measure"
        time.sleep(0.05)
    return process


def kernel_of(process: subprocess.Popen[str]) -> int:
    (kernel,) = [child for child in psutil.Process(process.pid).children() if "ipykernel" in " ".join(child.cmdline())]
    return kernel.pid


def to_runner(number: signal.Signals) -> Callable[[subprocess.Popen[str]], None]:
    return lambda process: process.send_signal(number)


def to_all(process: subprocess.Popen[str]) -> None:
    """As a scheduler does that ends a job: everyone gets the signal, the kernel also ours."""
    kernel = kernel_of(process)
    os.kill(kernel, signal.SIGTERM)
    process.send_signal(signal.SIGTERM)


def report_of(project: Path) -> str:
    return (project / "out" / "report.html").read_text(encoding="utf-8")


def kept(project: Path) -> list[Any]:
    return [json.loads(line) for line in (project / "out" / "lines.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(to_runner(signal.SIGINT), id="SIGINT"),
        pytest.param(to_runner(signal.SIGTERM), id="SIGTERM", marks=pytest.mark.slow),  # to all it is sent below
    ],
)
def test_signal_ends_the_measurement_and_the_rest_runs(
    project: Path, how: Callable[[subprocess.Popen[str]], None]
) -> None:
    process = run_until_measuring(project)
    kernel = kernel_of(process)
    how(process)
    out, err = process.communicate(timeout=60)
    done = len(kept(project))
    assert process.returncode == 1
    assert tells(err, "Stopping")
    assert f"kept {done}\n" in out
    assert f"figures of {done} prompts" in out, "the small notebook's own words"
    assert tells(err, f"cell 6 RuntimeError: {done} 100000")
    assert f"{done} of 100000 prompts were measured" in report_of(project)
    assert not psutil.pid_exists(kernel)


def test_signal_to_runner_and_kernel_at_once_is_one_stop(project: Path) -> None:
    process = run_until_measuring(project)
    to_all(process)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"figures of {len(kept(project))} prompts" in out
    assert "of 100000 prompts were measured" in report_of(project)


def test_killed_kernel_leaves_lines_and_a_report(project: Path) -> None:
    process = run_until_measuring(project)
    os.kill(kernel_of(process), signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "DeadKernelError" in err
    assert tells(banner(report_of(project)), "DeadKernelError")
    assert [line["prompt"] for line in kept(project)] == list(range(len(kept(project))))


def test_second_signal_ends_a_cell_that_does_not_listen(project: Path) -> None:
    path = project / "notebooks" / "01_tree.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[3].source = DEAF
    nbformat.write(notebook, path)
    process = run_until_measuring(project)
    kernel = kernel_of(process)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    while "Stopping" not in process.stderr.readline():
        pass
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert tells(err, "01_tree interrupted")
    assert tells(banner(report_of(project)), "interrupted")
    assert not psutil.pid_exists(kernel)


def test_interrupted_cell_that_keeps_nothing_is_a_failure_without_a_traceback(project: Path) -> None:
    path = project / "notebooks" / "01_tree.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[2].source = MEASURE.replace("except KeyboardInterrupt:", "except ZeroDivisionError:")
    nbformat.write(notebook, path)
    process = run_until_measuring(project)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert tells(err, "01_tree interrupted 4")
    assert "Traceback" not in err
