"""The progress line, the share of cores, and a GPU for each cell."""

import os

import pytest
from ddtree.workbook.sweep.cell import CUDA_VARIABLE, GPUS_VARIABLE, own_gpu, visible_gpus
from ddtree.workbook.sweep.executor import (
    Count,
    ExecutorError,
    ProgressLine,
    duration,
    environment_of,
    local_jobs,
    remote_jobs,
    threads_of_each,
)
from ddtree.workbook.sweep.grid import Cell
from wording import names, tells

CPU = [Cell("a", {"device": "cpu"})]
CUDA = [Cell("a", {"device": "cuda"})]


@pytest.mark.parametrize(
    ("count", "seconds", "line"),
    [
        (Count(48, 12, 1, 12), 360, "12 48 1 failed 6 min 18 min"),
        (Count(48, 12, 0, 4), 360, "12 48 6 min 54 min"),
        (Count(48, 0, 0, 0), 20, "0 48 20 s"),
        (Count(48, 48, 2, 3), 7500, "48 48 2 failed 2 h 05 min"),
    ],
)
def test_time_left_is_that_of_the_cells_of_this_call(count: Count, seconds: float, line: str) -> None:
    assert tells(count.line(seconds), line)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (89, "89 s"), (90, "2 min"), (3540, "59 min"), (3599, "1 h 00 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_pipe_gets_one_line_per_ended_cell(capsys: pytest.CaptureFixture[str]) -> None:
    line = ProgressLine()
    for ended, fresh in ((5, 0), (5, 0), (6, 1), (6, 1), (7, 2)):
        line.show(Count(9, ended, 0, fresh), 60)
    line.close()
    first, second = capsys.readouterr().out.splitlines()
    assert tells(first, "6 9")
    assert tells(second, "7 9")


@pytest.mark.parametrize(
    ("jobs", "cores", "threads"), [(1, 8, 8), (2, 8, 4), (3, 8, 2), (8, 8, 1), (9, 8, 1), (4, 2, 1)]
)
def test_jobs_share_the_cores(jobs: int, cores: int, threads: int) -> None:
    assert threads_of_each(jobs, cores) == threads


def test_several_local_jobs_wait_passively_and_say_that_cores_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.cpu_count", lambda logical: 8)
    alone, several = local_jobs(1, CPU), local_jobs(3, CPU)
    assert (alone.note, "OMP_WAIT_POLICY" in alone.environment) == ("", False)
    assert "loaded cores" in several.note
    assert environment_of(several)["OMP_WAIT_POLICY"] == "PASSIVE"
    options = " ".join(several.options)
    assert "--cores 6 --set-threads cell=2" in options  # three jobs of two threads


def test_local_gpu_cells_need_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CUDA_VARIABLE, "")
    assert visible_gpus() == []
    with pytest.raises(ExecutorError, match=names("CUDA GPU")):
        local_jobs(1, CUDA)
    monkeypatch.setenv(CUDA_VARIABLE, "2, 5")
    jobs = local_jobs(2, CUDA)
    assert environment_of(jobs)[GPUS_VARIABLE] == "2,5"
    assert "gpu=2" in jobs.options


def test_two_cells_at_once_have_different_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv(GPUS_VARIABLE, "3,GPU-5a")
    monkeypatch.setenv(CUDA_VARIABLE, "3,GPU-5a")
    with own_gpu():
        assert os.environ[CUDA_VARIABLE] == "3"
        with own_gpu():
            assert os.environ[CUDA_VARIABLE] == "GPU-5a"
    with own_gpu():
        assert os.environ[CUDA_VARIABLE] == "3"


def test_a_cluster_has_chosen_the_gpu_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(GPUS_VARIABLE, raising=False)
    monkeypatch.setenv(CUDA_VARIABLE, "7")
    with own_gpu():
        assert os.environ[CUDA_VARIABLE] == "7"


def test_an_executor_that_is_not_installed_names_its_package() -> None:
    with pytest.raises(ExecutorError, match=names("snakemake-executor-plugin-moon")):
        remote_jobs("moon", None, None)
