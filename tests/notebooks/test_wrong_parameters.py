"""What YAML and papermill make of parameters is caught in the notebook, by papermill's own command, before a model."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import nbformat
import papermill
import pytest
from ddtree.workbook.paths import project_root
from wording import tells

NOTEBOOK = project_root() / "notebooks" / "03_live.ipynb"
TRAPS = """
temperatures: [0.0, 1e-6]
extra_budgets: [4, "8", 16.0]
prompts: [Tell me a joke., off]
min_p: 1e-6
top_k: None
top_p: ~
dtype: off
max_new_tokens: 007
bugdet: 3
diversity_tokens:
"""
NAMED = [
    "LiveParams 13",
    "temperatures[1] 1e-6 0 10 1.0e-6",
    "extra_budgets[1] 8 0 1024 8",
    "extra_budgets[2] 16.0 0 1024",
    "prompts[1] False",
    "min_p 1e-6 0 1 1.0e-6",
    "top_k None 0 1000000 null",
    "top_p None 0 1 null",
    "dtype False",
    "diversity_tokens None 1 4096",
    "bugdet budget",
    # from -p, which knows True, None and numbers, and takes all else for text
    "drafter None",
    "repeats True 1 100",
    "sead seed",
]
OPTIONS = ["-p", "drafter", "None", "-p", "repeats", "True", "-p", "sead", "1", "-p", "seed", "007"]


@dataclass(frozen=True)
class Refused:
    """A run of papermill that failed: what it said, and the notebook it left."""

    stderr: str
    executed: nbformat.NotebookNode

    @property
    def injected(self) -> dict[str, str]:
        (cell,) = [cell for cell in self.executed.cells if "injected-parameters" in cell.metadata.get("tags", [])]
        return dict(line.split(" = ", 1) for line in cell.source.splitlines() if " = " in line)


def refused(notebook: Path, out: Path, *options: str) -> Refused:
    command = [sys.executable, "-m", "papermill", str(notebook), str(out), "--no-progress-bar", *options]
    done = subprocess.run(command, cwd=project_root(), capture_output=True, text=True, check=False)
    assert done.returncode != 0
    executed = nbformat.read(out, as_version=4)
    loading = [cell for cell in executed.cells if "pair = " in cell.source]
    assert loading
    assert all(cell.execution_count is None for cell in loading), "nothing is loaded"
    return Refused(done.stderr, executed)


@pytest.fixture(scope="module")
def traps(tmp_path_factory: pytest.TempPathFactory) -> Refused:
    folder = tmp_path_factory.mktemp("traps")
    (folder / "traps.yaml").write_text(TRAPS)
    return refused(NOTEBOOK, folder / "out.ipynb", "-f", str(folder / "traps.yaml"), *OPTIONS)


@pytest.mark.parametrize("words", NAMED)
def test_trap_is_named(traps: Refused, words: str) -> None:
    assert tells(traps.stderr, words)


@pytest.mark.parametrize(("name", "value"), [("max_new_tokens", "7"), ("seed", "7")])
def test_leading_zeros_are_a_number(traps: Refused, name: str, value: str) -> None:
    """YAML 1.1 reads 007 as an octal 7, papermill's -p as int("007")."""
    assert traps.injected[name] == value
    assert f"\n{name} is" not in traps.stderr


def test_list_on_the_command_line_is_text(tmp_path: Path) -> None:
    found = refused(NOTEBOOK, tmp_path / "out.ipynb", "-p", "temperatures", "[0.0, 1.0]", "-p", "min_p", "1e-6")
    assert tells(found.stderr, "temperatures [0.0, 1.0] 0 10 papermill -p YAML")
    assert tells(found.stderr, "LiveParams 1"), "-p reads 1e-6 as a number"


@pytest.fixture(scope="module")
def untagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """03_live whose cell of defaults has lost its tag: papermill injects at the top."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        cell.metadata.pop("tags", None)
    path = tmp_path_factory.mktemp("untagged") / "03_live.ipynb"
    nbformat.write(notebook, path)
    assert papermill.inspect_notebook(str(path)) == {}
    return path


def test_values_lost_for_want_of_a_tag_are_named(untagged: Path, tmp_path: Path) -> None:
    found = refused(untagged, tmp_path / "out.ipynb", "-p", "budget", "8", "-p", "sead", "1", "-p", "top_k", "5")
    assert tells(found.stderr, "budget top_k parameters papermill")
    assert tells(found.stderr, "sead seed")
