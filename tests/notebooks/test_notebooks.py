"""The notebooks as they are committed, and run whole on tiny settings: record, report, figures and printed lines."""

import ast
import importlib.util
import json
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from ddtree.workbook.params import PARAMS
from ddtree.workbook.paths import project_root
from ddtree.workbook.records import read_result
from executed import FIGURES, THREADS, Executed, Session
from wording import tells

NOTEBOOKS = sorted((project_root() / "notebooks").glob("*.ipynb"))
MOST_LINES = 25  # of a code cell; the list of parameters is as long as it is

FACTS = {"model", "drafter", "dtype", "device", "attention", "packed_linears", "block_size"}


# As committed


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def is_parameters(cell: nbformat.NotebookNode) -> bool:
    return "parameters" in cell.metadata.get("tags", [])


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def committed(request: pytest.FixtureRequest) -> nbformat.NotebookNode:
    return nbformat.read(request.param, as_version=4)


def test_every_notebook_has_checked_parameters() -> None:
    assert {path.stem for path in NOTEBOOKS} == set(PARAMS)


def test_outputs_are_stripped(committed: nbformat.NotebookNode) -> None:
    for cell in code_cells(committed):
        assert cell.outputs == []
        assert cell.execution_count is None


def test_code_cells_are_short(committed: nbformat.NotebookNode) -> None:
    lines = {cell.source.partition("\n")[0]: cell.source.count("\n") + 1 for cell in code_cells(committed)}
    parameters = {cell.source.partition("\n")[0] for cell in committed.cells if is_parameters(cell)}
    assert {first: n for first, n in lines.items() if n > MOST_LINES and first not in parameters} == {}


def test_prose_comes_first_and_parameters_before_all_other_code(committed: nbformat.NotebookNode) -> None:
    assert committed.cells[0].cell_type == "markdown"
    assert committed.cells[0].source.startswith("# ")
    assert [is_parameters(cell) for cell in code_cells(committed)] == [True] + [False] * (
        len(code_cells(committed)) - 1
    )


def test_each_parameter_has_a_type_and_a_comment(committed: nbformat.NotebookNode) -> None:
    (source,) = [cell.source for cell in committed.cells if is_parameters(cell)]
    for statement in ast.parse(source).body:
        assert isinstance(statement, ast.AnnAssign), ast.unparse(statement)
        line = source.splitlines()[statement.lineno - 1]
        assert len(line.partition("  # ")[2]) > 5, line


def test_commands_to_try_next_are_valid() -> None:
    """Each `ddtree run` of the last cell names a notebook, parameters and files that exist."""
    cells = nbformat.read(project_root() / "notebooks" / "02_kernel.ipynb", as_version=4).cells
    (block,) = re.findall(r"```sh\n(.*?)```", cells[-1].source, re.DOTALL)
    commands = [shlex.split(line) for line in block.splitlines()]
    assert len(commands) == 3
    for _, verb, stem, *options in commands:
        assert verb == "run"
        values = dict(option.split("=", 1) for flag, option in pairwise(options) if flag == "-p")
        assert set(values) <= set(PARAMS[stem].model_fields)
        files = [file for flag, file in pairwise(options) if flag == "-f"]
        assert all((project_root() / file).is_file() for file in files)


# Run whole


@pytest.fixture(scope="module")
def tree(smollm2: Path, session: Session) -> Executed:
    return session.notebook("01_tree")


@pytest.fixture(scope="module")
def kernel(smollm2: Path, session: Session) -> Executed:
    return session.notebook("02_kernel")


@pytest.fixture(scope="module")
def live(smollm2: Path, session: Session) -> Executed:
    return session.notebook("03_live")


@pytest.fixture(params=["tree", "kernel", "live"])
def done(request: pytest.FixtureRequest) -> Executed:
    return request.getfixturevalue(request.param)


@pytest.mark.model
def test_run_succeeds_and_its_record_is_whole(done: Executed) -> None:
    record = read_result(done.outcome.result)
    assert record["notebook"] == done.stem
    assert record["params"] == done.params.to_plain()
    assert record["environment"]["torch_threads"] == THREADS
    assert record["environment"]["packages"]["ddtree"]
    assert record["wall_s"] > 0
    assert set(record["metrics"]["pair"]) == FACTS


@pytest.mark.model
def test_report_has_every_figure_of_the_notebook(done: Executed) -> None:
    assert len(done.figures) == FIGURES[done.stem]
    assert done.report.count('<figure class="plot">') == len(done.figures)


@pytest.mark.model
def test_lines_are_printed_as_they_come(done: Executed) -> None:
    assert "python 3." in done.printed
    assert tells(done.printed, f"{THREADS} GPU")
    assert done.printed.rstrip().endswith(str(done.outcome.result))


@pytest.mark.model
def test_tree_record(tree: Executed) -> None:
    metrics = tree.metrics
    assert metrics["tree_size"] == 9
    assert 1 <= metrics["deepest"] <= 7
    assert 0 <= metrics["accepted"] <= metrics["deepest"]
    assert len(metrics["tokens"]) == metrics["accepted"] + 1


@pytest.mark.model
def test_kernel_record(kernel: Executed) -> None:
    metrics = kernel.metrics
    assert metrics["walk_equals_backend"] is True
    assert [len(path) - 1 for path in metrics["path"]] == metrics["accepted"]
    assert [path[0] for path in metrics["path"]] == [0, 0]
    assert {backend["backend"]: backend["usable"] for backend in metrics["backends"]}["reference"] is True
    assert tells(kernel.printed, "KV path")


@pytest.mark.model
def test_kernel_is_launched_and_agrees_with_the_loop(kernel: Executed) -> None:
    assert tells(kernel.printed, "node 0 coin child 1 running sum")
    assert tells(kernel.printed, "node final coin draw")
    ran = "fused kernel interpreter agrees loop" if importlib.util.find_spec("triton") else "Not run Triton"
    assert tells(kernel.printed, ran)
    assert tells(kernel.printed, "Not run CUDA cpu"), "the stock op has no CPU version"
    assert tells(kernel.printed, "accept_index - 1 * 9 nodes")


@pytest.mark.model
def test_kernel_laws(kernel: Executed) -> None:
    laws = kernel.metrics["laws"]
    assert (laws["tested"], laws["draws_of_each"], laws["rejected"]) == (144, 2000, 0)
    assert (laws["controls_run"], laws["controls_rejected"]) == (5, 5)
    assert (laws["replayed"], laws["replays_differing"]) == (4800, 0)
    assert 0 < laws["worst_total_variation"] < 1
    assert len(laws["rows"]) == 144 + 5 * 3
    assert {row["law"] for row in laws["rows"]} == {"first token", "second token", "drafts accepted"}
    assert tells(kernel.printed, "test control rejected")


@pytest.mark.model
def test_live_speedup_and_overhead(live: Executed) -> None:
    metrics = live.metrics
    everywhere = {"autoregressive", "chain", "tree 8/4"}
    labels = {"0": everywhere, "1": everywhere | {"tree 4/4", "tree auto/4"}}
    for name in ("speedup", "overhead_share"):
        assert {temperature: set(found) for temperature, found in metrics[name].items()} == labels
    for found in metrics["speedup"].values():
        assert found["autoregressive"] == {"value": 1, "low": 1, "high": 1}
        assert all(0 < speed["low"] <= speed["value"] <= speed["high"] for speed in found.values())
    shares = [share for found in metrics["overhead_share"].values() for share in found.values()]
    assert all(0 < share < 1 for share in shares)
    for temperature, best in metrics["best_tree"].items():
        trees = {label: s["value"] for label, s in metrics["speedup"][temperature].items() if label.startswith("tree")}
        assert best == {"label": max(trees, key=trees.__getitem__), "speedup": max(trees.values())}


@pytest.mark.model
def test_live_sameness_and_diversity(live: Executed) -> None:
    metrics = live.metrics
    assert metrics["greedy_equal_float32"] is True
    assert [(row["prompt"], row["strategy"], row["tokens"]) for row in metrics["greedy_near_ties"]] == [
        (0, "chain", 8),
        (0, "tree", 8),
    ]
    for row in metrics["greedy_near_ties"]:
        assert row["equal"] or row["gap_ulp"] <= 4, row
    assert metrics["distinct_texts"] == {"0": 1, "1": 2}
    assert metrics["backends"]


@pytest.mark.model
def test_live_calibration(live: Executed) -> None:
    lengths = {row["temperature"]: row for row in live.metrics["acceptance_lengths"]}
    assert set(lengths) == {0, 1}
    assert lengths[0]["target"] == pytest.approx(lengths[0]["measured"])
    assert lengths[0]["z"] is None
    assert abs(lengths[1]["z"]) < 4.5
    for row in live.metrics["reliability"]:
        assert 0 <= row["share_lo"] <= row["share"] <= row["share_hi"] <= 1
        assert row["share"] == pytest.approx(row["accepted"] / row["n"])


@pytest.mark.model
def test_live_traces_agree_with_the_summary(live: Executed) -> None:
    lines = (live.outcome.result.parent / "generations.jsonl").read_text(encoding="utf-8").splitlines()
    generations = pd.DataFrame([json.loads(line) for line in lines])
    rounds = pd.read_parquet(live.outcome.result.parent / "rounds.parquet")
    summary = pd.DataFrame(live.metrics["summary"])
    assert len(generations) == 2 * len(summary) == 2 * 8
    keys = ["temperature", "label"]
    expected = summary.set_index(keys).sort_index()
    assert (generations.groupby(keys)["tokens"].sum() == expected["tokens"]).all()
    assert (rounds.groupby(keys).size() == expected["rounds"]).all()
    assert (rounds.groupby(keys)["emitted"].sum() == expected["tokens"]).all()
    lines = [line for line in live.printed.splitlines() if line.startswith("prompt ")]
    assert [tells(line, f"prompt {done} 2") for done, line in enumerate(lines, start=1)] == [True, True]


# Wrong parameters


def test_plain_papermill_with_a_misspelling_fails_before_a_model_loads(tmp_path: Path) -> None:
    out = tmp_path / "out.ipynb"
    command = [sys.executable, "-m", "papermill", "notebooks/03_live.ipynb", str(out), "-p", "temprature", "0.5"]
    finished = subprocess.run(command, cwd=project_root(), capture_output=True, text=True, check=False)
    assert finished.returncode != 0
    assert tells(finished.stderr, "temprature temperatures")
    executed = nbformat.read(out, as_version=4)
    ran = [cell.source for cell in code_cells(executed) if cell.execution_count is not None]
    assert any("LiveParams.check" in source for source in ran)
    loading = [cell for cell in code_cells(executed) if "pair = " in cell.source]
    assert loading
    assert all(cell.execution_count is None and not cell.outputs for cell in loading)
