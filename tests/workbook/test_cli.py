"""`ddtree run` checks before it starts, and leaves a report whatever the notebook does."""

import ast
import json
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path

import ddtree.models as ddtree_models
import nbformat
import papermill
import pytest
from bs4 import BeautifulSoup
from ddtree.workbook.cli import app
from ddtree.workbook.params import TreeParams
from ddtree.workbook.records import read_result
from ddtree.workbook.report.index import runs_below
from ddtree.workbook.runner import ipc_sockets
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from papermill.exceptions import PapermillExecutionError
from typer.testing import CliRunner, Result
from wording import banner, tells

CHECK = """
import os
import sys
import types
from collections.abc import Callable
from ddtree.workbook.params import TreeParams
from ddtree.workbook.records import write_result
params = TreeParams.check(globals())
print("live", os.environ["DDTREE_LIVE"], "in", os.getcwd(), flush=True)
"""
DIE = """
if params.prompt == "die":
    from ddtree.workbook.notebook_run import NotebookRun
    NotebookRun.start("01_tree", params)
    os._exit(3)
"""
WRITE = 'write_result(params.out_dir, notebook="01_tree", params=params, metrics={"budget": params.budget}, wall_s=1)'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one notebook, 01_tree, which fails when its prompt is "fail"."""
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "ddtree"\n')
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "params").mkdir()
    defaults = "\n".join(f"{name} = {value!r}" for name, value in TreeParams.defaults().items())
    cells = [
        new_markdown_cell("# A small run"),
        new_code_cell(defaults, metadata={"tags": ["parameters"]}),
        new_code_cell(CHECK),
        new_code_cell('if params.prompt == "fail":\n    raise RuntimeError("as asked")'),
        new_code_cell(DIE),
        new_code_cell(WRITE),
    ]
    metadata = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}}
    nbformat.write(new_notebook(cells=cells, metadata=metadata), tmp_path / "notebooks" / "01_tree.ipynb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DDTREE_LIVE", raising=False)
    return tmp_path


def ddtree(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_run_gives_notebook_result_and_report(project: Path) -> None:
    (project / "params" / "quick.yaml").write_text("budget: 5\n")
    done = ddtree("run", "01_tree", "-f", "params/quick.yaml", "-p", "temperature=0.0")
    assert done.exit_code == 0, done.output
    out = project / "outputs" / "tree-quick"
    paths = [f"outputs/tree-quick/{name}" for name in ("executed.ipynb", "result.json", "report.html")]
    assert [line.split()[-1] for line in done.stdout.splitlines()[-3:]] == paths
    assert f"live 0 in {project}" in done.stdout
    assert "DDTREE_LIVE" not in os.environ
    expected = {**TreeParams.defaults(), "budget": 5, "temperature": 0.0, "out_dir": "outputs/tree-quick"}
    assert read_result(out)["params"] == expected
    executed = nbformat.read(out / "executed.ipynb", 4)
    (injected,) = [cell for cell in executed.cells if "injected-parameters" in cell.metadata.get("tags", [])]
    assigned = [statement for statement in ast.parse(injected.source).body if isinstance(statement, ast.Assign)]
    assert {ast.unparse(each.targets[0]): ast.literal_eval(each.value) for each in assigned} == expected
    facts = executed.metadata.papermill
    assert (facts.input_path, facts.output_path) == ("notebooks/01_tree.ipynb", "outputs/tree-quick/executed.ipynb")
    assert "<h1>A small run</h1>" in (out / "report.html").read_text()


def test_failed_run_keeps_its_report_and_no_old_result(project: Path) -> None:
    out = project / "elsewhere"
    out.mkdir()
    (out / "result.json").write_text(json.dumps({"schema": 1}))
    done = ddtree("run", "notebooks/01_tree.ipynb", "-p", "prompt=fail", "-o", "elsewhere")
    assert done.exit_code == 1
    assert tells(done.stderr, "cell 5 RuntimeError: as asked")
    assert tells(done.stdout, "result none")
    assert not (out / "result.json").exists()
    assert "RuntimeError" in (out / "report.html").read_text()


def test_report_and_index_of_a_dead_kernel_keep_what_was_known(project: Path) -> None:
    (project / "elsewhere").mkdir()
    (project / "elsewhere" / "run.json").write_text("of an earlier run")
    done = ddtree("run", "01_tree", "-p", "prompt=die", "-o", "elsewhere")
    assert done.exit_code == 1
    assert "DeadKernelError" in done.stderr
    report = (project / "elsewhere" / "report.html").read_text()
    assert tells(banner(report), "DeadKernelError")
    header = BeautifulSoup(report, "html.parser").header
    rows = {row.th.text: row.td.text for row in header.select("table.facts tr")}  # type: ignore
    assert (rows["prompt"], rows["budget"]) == ("die", "16")
    assert "physical cores" in rows["CPU"]
    (listed,) = runs_below(project / "elsewhere")
    assert (listed.status, listed.notebook, listed.params["prompt"]) == ("failed", "01_tree", "die")
    assert listed.machine


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["01_tree", "-p", "budgte=3"], "budgte budget"),
        (["01_tree", "-p", "budget=1025"], "budget 1025"),
        (["01_tree", "-p", "temperature=1e-6"], "temperature 1e-6 1.0e-6"),
        (["01_tree", "-p", "budget"], "name=value"),
        (["01_tree", "-p", "budget=[1"], "budget [1"),
        (["01_tree", "-f", "absent.yaml"], "absent.yaml"),
        (["01_tree", "-f", "empty.yaml"], "empty.yaml"),
        (["01_trie"], "01_tree"),
        (["other.ipynb"], "other"),
    ],
)
def test_wrong_arguments_start_nothing(project: Path, arguments: list[str], sentence: str) -> None:
    (project / "empty.yaml").write_text("# budget: 3\n")
    (project / "other.ipynb").write_text("{}")
    done = ddtree("run", *arguments)
    assert done.exit_code == 2
    assert tells(done.stderr, sentence)
    assert not (project / "outputs").exists()


def test_out_dir_that_is_a_file_is_named(project: Path) -> None:
    (project / "taken").write_text("")
    done = ddtree("run", "01_tree", "-o", "taken")
    assert done.exit_code == 1
    assert tells(done.stderr, "taken")


def test_plain_papermill_with_a_misspelling_fails_in_the_notebook(project: Path) -> None:
    source = str(project / "notebooks" / "01_tree.ipynb")
    wrong = r"unknown parameter 'budgte'; did you mean 'budget'\?"
    with ipc_sockets() as config, pytest.raises(PapermillExecutionError, match=wrong):
        papermill.execute_notebook(
            source, str(project / "out.ipynb"), parameters={"budgte": 3}, progress_bar=False, config=config
        )


def test_report_needs_a_run(project: Path) -> None:
    done = ddtree("report", "outputs/none")
    assert done.exit_code == 1
    assert tells(done.stderr, "executed.ipynb")


def test_report_is_built_again(project: Path) -> None:
    out = project / "outputs" / "x"
    out.mkdir(parents=True)
    nbformat.write(new_notebook(cells=[new_markdown_cell("# Again")]), out / "executed.ipynb")
    done = ddtree("report", "outputs/x")
    assert (done.exit_code, done.stdout) == (0, "outputs/x/report.html\n")
    assert "<h1>Again</h1>" in (out / "report.html").read_text()


def write_run(folder: Path, heading: str) -> None:
    folder.mkdir(parents=True)
    nbformat.write(new_notebook(cells=[new_markdown_cell(f"# {heading}")]), folder / "executed.ipynb")


def test_reports_of_several_runs_are_built_past_one_that_cannot_be(project: Path) -> None:
    write_run(project / "outputs" / "a", "First")
    write_run(project / "outputs" / "b", "Second")
    done = ddtree("report", "outputs/a", "outputs/none", "outputs/b")
    assert (done.exit_code, done.stdout) == (1, "outputs/a/report.html\noutputs/b/report.html\n")
    assert tells(done.stderr, "outputs/none/executed.ipynb")
    assert "<h1>Second</h1>" in (project / "outputs" / "b" / "report.html").read_text()


def test_report_of_a_folder_of_runs_tells_of_the_index(project: Path) -> None:
    write_run(project / "outputs" / "a", "First")
    done = ddtree("report", "outputs")
    assert done.exit_code == 1
    assert tells(done.stderr, "1 ddtree report --index outputs")


def test_index_lists_the_runs_below(project: Path) -> None:
    write_run(project / "outputs" / "a", "First")
    done = ddtree("report", "--index", "outputs")
    assert (done.exit_code, done.stdout) == (0, "outputs/index.html\n")
    assert "First" in (project / "outputs" / "index.html").read_text()
    nothing = ddtree("report", "--index", "notebooks")
    assert nothing.exit_code == 1
    assert tells(nothing.stderr, "notebooks")


def test_pdf_without_a_browser_is_a_sentence(project: Path) -> None:
    write_run(project / "outputs" / "a", "First")
    done = ddtree("report", "outputs/a", "--pdf", "--browser", "no-such-browser")
    assert done.exit_code == 1
    assert tells(done.stderr, "no-such-browser --browser")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [(["--index", "--pdf"], "PDF"), (["--browser", "chromium"], "--pdf")],
)
def test_options_that_contradict_each_other_write_nothing(project: Path, arguments: list[str], sentence: str) -> None:
    write_run(project / "outputs" / "a", "First")
    done = ddtree("report", "outputs/a", *arguments)
    assert done.exit_code == 2
    assert tells(done.stderr, sentence)
    assert len(list((project / "outputs").rglob("*.html"))) == 0


def test_fetch_prints_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    zoo(monkeypatch, lambda name: Path("/cache") / name)
    done = ddtree("fetch")
    assert (done.exit_code, done.stdout) == (0, "/cache/smollm2-135m\n")


def test_fetch_prints_the_folder_of_the_drafter(monkeypatch: pytest.MonkeyPatch) -> None:
    zoo(monkeypatch, lambda name: pytest.fail("the target was asked for"))
    done = ddtree("fetch", "--drafter")
    assert (done.exit_code, done.stdout) == (0, "/cache/drafter-of-smollm2-135m\n")
    assert ddtree("fetch", "--drafter", "--verify").exit_code == 2


def test_failed_fetch_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> Path:
        raise ValueError(f"{name} is not in the zoo.")

    zoo(monkeypatch, refuse)
    done = ddtree("fetch", "lion")
    assert done.exit_code == 1
    assert tells(done.stderr, "lion is not in the zoo")


def zoo(monkeypatch: pytest.MonkeyPatch, fetch: Callable[[str], Path]) -> None:
    """Put a zoo with this `fetch` in the place of the real one, which loads torch."""
    module = types.ModuleType("ddtree.models.zoo")
    module.fetch = fetch  # type: ignore[attr-defined]
    module.fetch_drafter = lambda name: Path("/cache") / f"drafter-of-{name}"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ddtree.models.zoo", module)
    monkeypatch.setattr(ddtree_models, "zoo", module, raising=False)
