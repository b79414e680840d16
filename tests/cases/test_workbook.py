"""Published failures of papermill, nbconvert, plotly and Jupyter, each on its own numbers."""

import re
import tomllib
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from ddtree.workbook.params import PARAMS, LiveParams, NotebookParams, ParameterError, TreeParams
from ddtree.workbook.params_validation import parse_value
from ddtree.workbook.paths import project_root
from ddtree.workbook.runner import ipc_sockets, run_notebook
from jupyter_client.manager import KernelManager
from nbformat.v4 import new_code_cell, new_notebook
from papermill.cli import _resolve_type as as_papermill_reads
from wording import names, tells

NOTEBOOKS = sorted((project_root() / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_c02_notebook_names_the_common_kernel_and_its_language(path: Path) -> None:
    metadata = nbformat.read(path, as_version=4).metadata
    assert metadata["kernelspec"]["name"] == "python3"
    assert metadata["kernelspec"].get("language", metadata.get("language_info", {}).get("name")) == "python"


@pytest.mark.parametrize(
    ("model", "name", "value", "found"),
    [
        (TreeParams, "budget", np.int64(3), "int64"),
        (LiveParams, "extra_budgets", (1, 2), "tuple"),
        (LiveParams, "temperatures", np.array([0.5, 0.25]), "ndarray"),
    ],
)
def test_c03_rich_value_is_refused_before_papermill_makes_text_of_it(
    model: type[NotebookParams], name: str, value: Any, found: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        model.from_mapping({name: value})
    (problem,) = caught.value.problems
    assert tells(problem, name)
    assert f"({found})" in problem


def test_c03_numpy_float_becomes_a_float() -> None:
    temperature = TreeParams.from_mapping({"temperature": np.float32(0.7)}).to_plain()["temperature"]
    assert type(temperature) is float
    assert temperature == pytest.approx(0.7)


@pytest.mark.parametrize("model", PARAMS.values())
def test_c03_papermill_gets_plain_values_alone(model: type[NotebookParams]) -> None:
    for value in model.from_mapping({}).to_plain().values():
        assert type(value) in (str, int, float, list, dict)


# name, text after -p, what `papermill -p` makes of it, what YAML (a file, or `ddtree run -p`) makes of it
DOORS = [
    ("temperature", "1e-3", 0.001, "1e-3"),
    ("threads", "None", None, "None"),
    ("temperatures", "[1, 2]", "[1, 2]", [1, 2]),
    ("seed", "true", "true", True),
    ("prompt", "007", 7, 7),
]
RIGHT = (0.001, [1, 2])  # of these readings; each of the others is refused


@pytest.mark.parametrize(("name", "text", "by_papermill", "by_yaml"), DOORS)
def test_c04_each_door_s_reading_is_taken_as_meant_or_refused_by_name(
    name: str, text: str, by_papermill: object, by_yaml: object
) -> None:
    assert as_papermill_reads(text) == by_papermill
    assert parse_value(name, text) == by_yaml
    model = LiveParams if name == "temperatures" else TreeParams
    for value in (by_papermill, by_yaml):
        if value in RIGHT:
            assert getattr(model.from_mapping({name: value}), name) == value
        else:
            with pytest.raises(ParameterError, match=names(f"{name} {value!r}")):
                model.from_mapping({name: value})


LINES = 'for line in range(200):\n    print("line", line, flush=True)'
GREEDY_BAR = "from tqdm import tqdm\nfor step in tqdm(range(2000), mininterval=0):\n    pass"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "ddtree"\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_c07_c10_c11_lines_and_bars_are_few_outputs_and_no_socket_stays(project: Path) -> None:
    defaults = "\n".join(f"{name} = {value!r}" for name, value in TreeParams.defaults().items())
    cells = [
        new_code_cell(defaults, metadata={"tags": ["parameters"]}),
        new_code_cell(LINES),
        new_code_cell(GREEDY_BAR),
    ]
    nbformat.write(new_notebook(cells=cells), project / "many.ipynb")
    outcome = run_notebook(project / "many.ipynb", TreeParams.from_mapping({}), project / "not" / "there" / "yet")
    assert outcome.failure == ""
    executed = nbformat.read(outcome.executed, as_version=4)
    by_source = {cell.source: cell.outputs for cell in executed.cells}
    (lines,) = by_source[LINES]
    assert lines.text == "".join(f"line {line}\n" for line in range(200))
    assert len(by_source[GREEDY_BAR]) < 50
    assert outcome.executed.stat().st_size < 100_000
    assert not list(project.glob("kernel-*"))


def test_c07_no_notebook_draws_bars_of_its_own() -> None:
    for path in NOTEBOOKS:
        assert "tqdm" not in path.read_text(encoding="utf-8")


def test_c10_eight_kernels_started_at_once_share_no_socket(project: Path) -> None:
    addresses: list[str] = []
    for run in range(8):
        with ipc_sockets() as config:
            manager = KernelManager(config=config, connection_file=str(project / f"kernel-{run}.json"))
            manager.write_connection_file()
            ports = [getattr(manager, f"{channel}_port") for channel in ("shell", "iopub", "stdin", "hb", "control")]
            assert manager.transport == "ipc"
            assert len(f"{manager.ip}-{max(ports)}") < 100, "a socket's path is limited to 107 bytes"
            addresses += [f"{manager.ip}-{port}" for port in ports]
    assert len(set(addresses)) == 8 * 5


def test_c12_what_figures_and_kernels_need_is_stated() -> None:
    stated = tomllib.loads((project_root() / "pyproject.toml").read_text())["project"]["optional-dependencies"][
        "notebooks"
    ]
    names = {re.split("[=><]", line)[0] for line in stated}
    assert {"nbformat", "ipykernel", "plotly", "ipywidgets"} <= names
