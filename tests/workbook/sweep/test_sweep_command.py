"""`ddtree sweep` on small notebooks without a model: what runs, what is kept, and how it ends."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest
from ddtree.workbook.cli import app
from ddtree.workbook.params import PARAMS, NotebookParams, TreeParams
from ddtree.workbook.paths import project_root
from ddtree.workbook.records import read_result
from nbformat.v4 import new_code_cell, new_notebook
from pydantic import Field
from typer.testing import CliRunner, Result
from wording import tells

# "fail" fails; "wait" and "wait-too" wait until the file `go` is there; every run leaves a line.
WORK = """
import os, time
from pathlib import Path
from ddtree.workbook.params import TreeParams
from ddtree.workbook.records import write_result
params = TreeParams.check(globals())
with open("runs.txt", "a") as file:
    print(f"{params.prompt} {params.seed}", file=file)
if params.prompt == "fail":
    raise RuntimeError("as asked")
while params.prompt.startswith("wait") and not Path("go").exists():
    time.sleep(0.05)
cores = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_WAIT_POLICY")}
write_result(params.out_dir, notebook="01_tree", params=params, metrics=cores, wall_s=0)
"""
SUMMARY = """
import json
from pathlib import Path
plan = json.loads((Path(sweep_dir) / "sweep.json").read_text())
done = len(list(Path(sweep_dir).glob("cells/*/result.json")))
Path("summary.txt").write_text(f"{done} of {len(plan['cells'])}")
"""


class SummaryParams(NotebookParams):
    sweep_dir: str = Field("outputs/sweeps/none", description="folder of the sweep")


def write_notebook(folder: Path, name: str, params: type[NotebookParams], source: str) -> None:
    defaults = "\n".join(f"{name} = {value!r}" for name, value in params.defaults().items())
    cells = [new_code_cell(defaults, metadata={"tags": ["parameters"]}), new_code_cell(source)]
    metadata = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}}
    nbformat.write(new_notebook(cells=cells, metadata=metadata), folder / "notebooks" / f"{name}.ipynb")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the real Snakefile and profiles, and the stub 01_tree."""
    real = project_root()
    shutil.copy(real / "Snakefile", tmp_path)
    shutil.copytree(real / "params" / "sweeps" / "profiles", tmp_path / "params" / "sweeps" / "profiles")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "ddtree"\n')
    (tmp_path / "notebooks").mkdir()
    write_notebook(tmp_path, "01_tree", TreeParams, WORK)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sweep_file(project: Path, prompts: list[str], **more: object) -> Path:
    path = project / "few.yaml"
    grid = {"notebook": "01_tree", "grid": {"prompt": prompts}, **more}
    path.write_text(json.dumps(grid))
    return path


def sweep(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["sweep", "few.yaml", *arguments])


def runs(project: Path) -> list[str]:
    path = project / "runs.txt"
    return path.read_text().splitlines() if path.exists() else []


def cells(project: Path) -> dict[str, Path]:
    """Prompt to folder of each cell of the plan."""
    folder = project / "outputs" / "sweeps" / "few"
    plan = json.loads((folder / "sweep.json").read_text())
    return {cell["params"]["prompt"]: folder / "cells" / cell["id"] for cell in plan["cells"]}


def locks(project: Path) -> list[Path]:
    return list((project / "outputs" / "sweeps" / "few" / ".snakemake" / "locks").glob("*"))


def test_a_failed_cell_is_kept_the_others_are_done_and_only_what_is_missing_runs_again(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psutil.cpu_count", lambda logical: 4)
    monkeypatch.setitem(PARAMS, "05_sweep", SummaryParams)
    write_notebook(project, "05_sweep", SummaryParams, SUMMARY)
    sweep_file(project, ["one", "fail"])
    first = sweep("-j", "2")
    assert first.exit_code == 1, first.output
    assert sorted(runs(project)) == ["fail 0", "one 0"]
    assert tells(first.stdout, "2 cells 2 thread")
    assert tells(first.stdout, "2 cells 1 done 1 failed outputs/sweeps/few")
    assert "raised RuntimeError: as asked" in first.stderr
    folders = cells(project)
    assert "RuntimeError" in (folders["fail"] / "executed.ipynb").read_text()
    assert not (folders["fail"] / "result.json").exists()
    assert not list(project.glob("outputs/sweeps/few/cells/*/report.html"))
    assert (project / "summary.txt").read_text() == "1 of 2"
    assert (project / "outputs" / "sweeps" / "few" / "summary" / "report.html").is_file()
    record = read_result(folders["one"])
    assert record["params"]["threads"] == 2
    assert record["metrics"] == {
        "OMP_NUM_THREADS": "2",
        "OPENBLAS_NUM_THREADS": "2",
        "OMP_WAIT_POLICY": "PASSIVE",
    }

    sweep_file(project, ["one", "two"])  # the failing value leaves the grid, a new one comes
    second = sweep("--no-summary")
    assert second.exit_code == 0, second.output
    assert sorted(runs(project)) == ["fail 0", "one 0", "two 0"]
    assert tells(second.stdout.splitlines()[0], "2 cells 1 done 1 outputs/sweeps/few")
    assert tells(second.stdout.splitlines()[-1], "2 cells 2 done outputs/sweeps/few")
    assert sum(line.startswith("2 of 2 ") for line in second.stdout.splitlines()) == 1
    assert (project / "summary.txt").read_text() == "1 of 2"
    assert read_result(cells(project)["two"])["params"]["threads"] == 4

    third = sweep("--no-summary")
    assert third.exit_code == 0
    assert len(runs(project)) == 3


def start(*arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", "from ddtree.workbook.cli import app; app()", "sweep", "few.yaml", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_run(project: Path, process: "subprocess.Popen[str]") -> list[psutil.Process]:
    """Every process of the sweep, once its cell is at work."""
    deadline = time.monotonic() + 180
    while not runs(project):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the cell never began"
        time.sleep(0.05)
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_a_stopped_sweep_leaves_no_process_and_no_lock_and_is_continued(project: Path, number: signal.Signals) -> None:
    sweep_file(project, ["wait", "wait-too"])  # Snakemake may begin with either
    process = start()
    family = wait_for_run(project, process)
    (first,) = runs(project)
    process.send_signal(number)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 1
    assert tells(err, "Stopping")
    assert tells(out.splitlines()[-1], "2 cells 0 done 2 outputs/sweeps/few")
    assert "continue" in err
    assert len(family) >= 3  # Snakemake, the cell, its kernel
    assert not [member for member in family if member.is_running()]
    assert locks(project) == []
    folder = cells(project)[first.split()[0]]
    assert (folder / "executed.ipynb").is_file()
    assert not (folder / "failure.json").exists()
    if number == signal.SIGTERM:
        (project / "go").touch()
        folder = project / "outputs" / "sweeps" / "few" / ".snakemake" / "locks"
        folder.mkdir(exist_ok=True)
        (folder / "0.input.lock").touch()  # as a Snakemake leaves it that is killed
        done = sweep()
        assert done.exit_code == 0, done.output
        assert tells(done.stdout, "lock")
        assert sorted(runs(project)) == sorted([first, "wait 0", "wait-too 0"])
        assert locks(project) == []


def test_a_cell_whose_process_is_killed_is_a_failure_that_says_so(project: Path) -> None:
    sweep_file(project, ["wait"])
    process = start()
    family = wait_for_run(project, process)
    for member in reversed(family):
        if "ddtree.workbook.sweep.cell" in member.cmdline()[1:3] or "ipykernel" in " ".join(member.cmdline()):
            os.kill(member.pid, signal.SIGKILL)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 1
    assert tells(out, "1 cell 0 done 1 failed")
    assert tells(err, "reason")
    assert locks(project) == []


def test_two_sweeps_in_one_folder_are_refused(project: Path) -> None:
    sweep_file(project, ["one"])
    folder = project / "outputs" / "sweeps" / "few"
    folder.mkdir(parents=True)
    with (folder / "snakemake.log").open("w") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        done = sweep()
    assert done.exit_code == 1
    assert str(folder) in done.stderr
    assert runs(project) == []
    assert not (folder / "sweep.json").exists()


def test_a_snakemake_that_cannot_start_is_no_success(project: Path) -> None:
    sweep_file(project, ["one"])
    (project / "Snakefile").write_text("rule without an end")
    done = sweep()
    assert done.exit_code == 1
    assert tells(done.stdout.splitlines()[-1], "1 cell 0 done 1 outputs/sweeps/few")
    assert tells(done.stderr, "1 outputs/sweeps/few/snakemake.log")
    assert "SyntaxError" in (project / "outputs" / "sweeps" / "few" / "snakemake.log").read_text()


def test_a_dry_run_shows_the_cells_and_leaves_nothing(project: Path) -> None:
    sweep_file(project, ["one", "two"])
    done = sweep("-n")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert "prompt-one" in lines[0]
    assert "prompt-two" in lines[1]
    (last,) = lines[2:]
    assert tells(last, "2 cells 0 done 2 outputs/sweeps/few")
    assert not (project / "outputs").exists()


def test_slurm_is_asked_for_gpu_memory_time_and_threads(project: Path) -> None:
    pytest.importorskip("snakemake_executor_plugin_slurm")
    sweep_file(project, ["one"], fixed={"device": "cuda"})
    done = sweep("-n", "--executor", "slurm")
    assert done.exit_code == 0, done.output
    job = done.stdout.partition("rule cell:")[2].partition("rule all:")[0]
    assert "threads: 8" in job
    for resource in ("gpu=1", "mem_mb=32000", "runtime=120"):
        assert resource in job
    assert not (project / "outputs").exists()


def test_a_wrong_sweep_starts_nothing(project: Path) -> None:
    sweep_file(project, ["one"], fixed={"budgte": 3})
    done = sweep()
    assert done.exit_code == 2
    assert tells(done.stderr, "few.yaml 1")
    assert tells(done.stderr, "fixed budgte budget")
    sweep_file(project, ["one"], notebook="02_kernel")
    done = sweep()
    assert done.exit_code == 2
    assert tells(done.stderr, "notebooks/02_kernel.ipynb")
    assert not (project / "outputs").exists()
