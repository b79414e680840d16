"""A run begins with threads, folder and versions, and ends with result.json."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch
from ddtree.workbook import notebook_run
from ddtree.workbook.notebook_run import NotebookRun, backend_table
from ddtree.workbook.params import SweepParams, TreeParams
from ddtree.workbook.records import read_result
from wording import names, tells


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "ddtree"\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_threads_are_those_asked_for(project: Path) -> None:
    NotebookRun.start("01_tree", TreeParams(threads=3))
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize(("cores", "threads"), [(5, 5), (None, 1)])
def test_no_threads_asked_for_are_all_physical_cores(
    project: Path, cores: int | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: None if logical else cores)
    NotebookRun.start("01_tree", TreeParams())
    assert torch.get_num_threads() == threads


def test_folder_is_made_and_versions_are_printed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = NotebookRun.start("01_tree", TreeParams(out_dir="outputs/deep/er", threads=2))
    assert run.out_dir == project / "outputs" / "deep" / "er"
    assert run.out_dir.is_dir()
    versions, more, machine = capsys.readouterr().out.splitlines()
    assert versions.startswith("python 3.")
    assert f", torch {torch.__version__.split('+')[0]}" in versions
    assert ", plotly " in more
    assert ", 2 threads; GPU: " in machine


def test_start_writes_what_is_known_before_the_first_measurement(project: Path) -> None:
    params = TreeParams(out_dir="outputs/here", seed=7, threads=2)
    run = NotebookRun.start("01_tree", params)
    begun = read_result(run.out_dir / "run.json")
    assert (begun["notebook"], begun["params"], begun["seed"]) == ("01_tree", params.to_plain(), 7)
    assert begun["environment"]["torch_threads"] == 2
    assert begun["git_revision"] is None
    run.finish({})
    assert read_result(run.out_dir)["started_utc"] == begun["started_utc"] == run.started_utc.isoformat()


def test_finish_writes_the_record_and_names_it(project: Path) -> None:
    params = TreeParams(out_dir="outputs/here", seed=7, budget=5)
    run = NotebookRun.start("01_tree", params)
    assert not (run.out_dir / "result.json").exists()
    assert run.finish({"tree_size": 6}) == Path("outputs/here/result.json")
    record = read_result(run.out_dir)
    assert (record["notebook"], record["seed"], record["metrics"]) == ("01_tree", 7, {"tree_size": 6})
    assert record["params"] == params.to_plain()
    assert 0 <= record["wall_s"] < 60
    assert record["environment"]["torch_threads"] == torch.get_num_threads()


def test_folder_outside_the_project_is_named_in_full(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "run"
    run = NotebookRun.start("01_tree", TreeParams(out_dir=str(elsewhere)))
    assert run.finish({}) == elsewhere / "result.json"


def test_pair_is_loaded_with_the_parameters(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook_run, "load_pair", lambda *names, **options: (names, options))
    run = NotebookRun.start("01_tree", TreeParams(model="org/a", drafter="org/b", dtype="float32"))
    assert run.load() == (("org/a", "org/b"), {"dtype": "float32", "device": "cpu"})


def test_backends_are_listed_with_a_reason() -> None:
    table = backend_table("cpu").set_index("backend")
    assert table.index.tolist() == ["fused", "sgl", "reference"]
    assert table["usable"].tolist() == [False, False, True], "the other two need a GPU"
    assert tells(table.loc["reference", "why"], "reference")
    assert table.loc["sgl", "why"]


def test_a_notebook_that_names_no_models_cannot_load_a_pair(project: Path) -> None:
    with pytest.raises(TypeError, match=names("05_sweep model drafter")):
        NotebookRun.start("05_sweep", SweepParams()).load()
