"""The live notebook itself, interrupted by SIGTERM after its first prompt and then run again: on the real pair."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from ddtree.workbook.paths import project_root
from ddtree.workbook.records import read_result
from wording import banner, tells

PROMPTS = 5
PARAMETERS = {
    "prompts": [f"Name {number} animals." for number in range(2, 2 + PROMPTS)],
    "temperatures": [1.0],
    "extra_budgets": [],
    "budget": 4,
    "max_new_tokens": 12,
    "bootstrap": 100,
    "regression_prompts": 0,
    "diversity_samples": 2,
    "diversity_tokens": 12,
    "threads": 1,
    "dtype": "float32",
}
SETTINGS = 3


def start(out: Path, **changes: Any) -> subprocess.Popen[str]:
    assignments = [f"{name}={json.dumps(value)}" for name, value in {**PARAMETERS, **changes}.items()]
    options = [part for assignment in assignments for part in ("-p", assignment)]
    command = [sys.executable, "-c", "from ddtree.workbook.cli import app; app()", "run", "03_live", "-o", str(out)]
    return subprocess.Popen(
        [*command, *options], cwd=project_root(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def lines(out: Path) -> list[str]:
    path = out / "generations.jsonl"
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


@pytest.mark.model
def test_stopped_run_reports_its_part_and_the_next_one_completes_it(smollm2: Path, tmp_path: Path) -> None:
    process = start(tmp_path)
    deadline = time.monotonic() + 300
    while len(lines(tmp_path)) < SETTINGS + 1:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no prompt was ever measured"
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=300)
    first = lines(tmp_path)
    done = len(first) // SETTINGS
    assert 1 <= done < PROMPTS
    assert process.returncode == 1
    assert tells(out, f"{done} {PROMPTS} interrupted")
    assert tells(err, f"{done} {PROMPTS} interrupted")
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert report.count('<figure class="plot">') >= 5, "those of the measurement"
    assert tells(banner(report), f"{done} {PROMPTS} interrupted")
    metrics = read_result(tmp_path)["metrics"]
    assert (metrics["prompts_done"], metrics["prompts_planned"], metrics["complete"]) == (done, PROMPTS, False)

    out, err = start(tmp_path).communicate(timeout=300)
    assert tells(out, f"generations.jsonl {done} {PROMPTS}"), err
    assert lines(tmp_path)[: len(first)] == first
    assert len(lines(tmp_path)) == PROMPTS * SETTINGS
    metrics = read_result(tmp_path)["metrics"]
    assert (metrics["prompts_done"], metrics["complete"]) == (PROMPTS, True)
    assert metrics["greedy_equal_float32"] is None, "nothing was compared"
    assert not (tmp_path / "generations.unfinished.json").exists()
