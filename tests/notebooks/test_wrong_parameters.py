"""What YAML and papermill make of parameters is caught in the notebook, by papermill's own command, before a model."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import nbformat
import papermill
import pytest
from ddtree.workbook.paths import project_root

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
SENTENCES = [
    "LiveParams: 13 wrong parameter(s).",
    "temperatures[1] is '1e-6' (text), but a number from 0 up to 10 is needed; "
    "YAML reads 1e-6 as text, so write 1.0e-6.",
    "extra_budgets[1] is '8' (text), but a whole number from 0 up to 1024 or "
    '"auto" is needed; write 8 without quotes.',
    'extra_budgets[2] is 16.0 (number with a decimal point), but a whole number from 0 up to 1024 or "auto" is needed.',
    "prompts[1] is False (true/false), but text that is not empty is needed; "
    "YAML reads bare on, off, yes, no, true and false as true/false, so put the text in quotes.",
    "min_p is '1e-6' (text), but a number from 0 up to 1 is needed; YAML reads 1e-6 as text, so write 1.0e-6.",
    "top_k is 'None' (text), but a whole number from 0 up to 1000000 is needed; "
    "YAML reads None as text (its word for no value is null), and a value is needed here.",
    "top_p is None (null), but a number above 0 up to 1 is needed; YAML reads an empty value, ~ and null as no value.",
    "dtype is False (true/false), but one of",
    "diversity_tokens is None (null), but a whole number from 1 up to 4096 is needed",
    "unknown parameter 'bugdet'; did you mean 'budget'?",
    # from -p, which knows True, None and numbers, and takes all else for text
    "drafter is None (null), but text that is not empty is needed",
    "repeats is True (true/false), but a whole number from 1 up to 100 is needed",
    "unknown parameter 'sead'; did you mean 'seed'?",
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


@pytest.mark.parametrize("sentence", SENTENCES)
def test_trap_is_a_sentence(traps: Refused, sentence: str) -> None:
    assert sentence in traps.stderr


@pytest.mark.parametrize(("name", "value"), [("max_new_tokens", "7"), ("seed", "7")])
def test_leading_zeros_are_a_number(traps: Refused, name: str, value: str) -> None:
    """YAML 1.1 reads 007 as an octal 7, papermill's -p as int("007")."""
    assert traps.injected[name] == value
    assert f"{name} is " not in traps.stderr


def test_list_on_the_command_line_is_text(tmp_path: Path) -> None:
    found = refused(NOTEBOOK, tmp_path / "out.ipynb", "-p", "temperatures", "[0.0, 1.0]", "-p", "min_p", "1e-6")
    assert (
        "temperatures is '[0.0, 1.0]' (text), but a list, at least one, each entry a number from 0 up to 10 is needed; "
        "a list given by `papermill -p` arrives as text, so use a YAML file." in found.stderr
    )
    assert "LiveParams: 1 wrong parameter(s)." in found.stderr, "-p reads 1e-6 as a number"


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
    assert (
        "the values given for budget, top_k were overwritten by the notebook's own: no cell has the tag `parameters`, "
        "so papermill put them before its cell of defaults; give that cell the tag." in found.stderr
    )
    assert "unknown parameter 'sead'; did you mean 'seed'?" in found.stderr
