"""`ddtree doctor` on this machine: one line a result, an exit code that tells, and JSON with the same in it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ddtree.workbook.cli import app
from ddtree.workbook.doctor import machine_checks
from ddtree.workbook.doctor.machine_checks import as_json, as_text, usable
from ddtree.workbook.doctor.packages import Check
from typer.testing import CliRunner, Result
from wording import tells

FINE = Check("gpu", "warning", "none", "a fix")
BROKEN = Check("torch", "missing", "not installed", 'pip install "torch==2.13.0"')


def doctor(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["doctor", *arguments])


def state(result: Result, subject: str) -> str:
    (found,) = [line["state"] for line in json.loads(result.stdout)["checks"] if line["subject"] == subject]
    return str(found)


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DDTREE_CACHE", str(tmp_path))
    return tmp_path


def test_text_has_a_line_for_each_finding_and_a_verdict() -> None:
    found, fix, problem, its_fix, blank, verdict = as_text([FINE, BROKEN]).splitlines()
    assert (found.split(), fix.split()) == (["warning", "gpu", "none"], [">", "a", "fix"])
    assert (problem.split(), blank) == (["missing", "torch", "not", "installed"], "")
    assert its_fix.split() == [">", "pip", "install", '"torch==2.13.0"']
    assert tells(verdict, "torch")
    assert not tells(as_text([FINE]).splitlines()[-1], "torch")


def test_only_what_is_missing_makes_it_unusable() -> None:
    assert usable([FINE])
    assert not usable([FINE, BROKEN])
    assert json.loads(as_json([BROKEN])) == {
        "usable": False,
        "checks": [
            {
                "subject": "torch",
                "state": "missing",
                "detail": "not installed",
                "fix": 'pip install "torch==2.13.0"',
            }
        ],
    }


def test_exit_code_follows_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    for results, code in (([FINE], 0), ([FINE, BROKEN], 1)):
        monkeypatch.setattr(machine_checks, "run_checks", lambda executable, results=results: results)
        assert doctor().exit_code == code
        assert doctor("--json").exit_code == code


def test_machine_without_the_model(empty_cache: Path) -> None:
    done = doctor("--json")
    assert done.exit_code == 1
    assert state(done, "model smollm2-135m") == "missing"
    assert state(done, "verify on cpu") == state(done, "packages") == state(done, "python") == "ok"
    assert list(empty_cache.iterdir()) == []


@pytest.mark.parametrize(("module", "subject"), [("torch", "models"), ("jupyter_client", "kernel")])
def test_machine_without_a_library(empty_cache: Path, module: str, subject: str) -> None:
    """In a fresh process, which imports everything anew; the package's metadata are still there."""
    hide = f"import sys; sys.modules[{module!r}] = None; from ddtree.workbook.cli import app; app(['doctor', '--json'])"
    done = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    states = {check["subject"]: check["state"] for check in json.loads(done.stdout)["checks"]}
    assert states["memory"] in ("ok", "warning")
    assert states[subject] == "missing"


def test_subjects_are_told_apart() -> None:
    subjects = [result.subject for result in machine_checks.run_checks("python")]
    assert len(subjects) == len(set(subjects))


def test_outside_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ddtree.workbook import paths

    monkeypatch.setattr(paths, "PROJECT_NAME", "another")
    monkeypatch.chdir(tmp_path)
    done = doctor()
    assert done.exit_code == 2
    assert done.stderr
