"""Every run below a folder is listed with its state; what cannot be read is listed with the reason."""

import json
from pathlib import Path

import pytest
from ddtree.workbook.report.index import ListedRun, runs_below
from run_folders import record, write_notebook, write_record, write_run
from wording import tells


def only(root: Path) -> ListedRun:
    (found,) = runs_below(root)
    return found


def test_done_run_is_listed_with_what_its_files_say(tmp_path: Path) -> None:
    folder = write_record(write_notebook(tmp_path / "a" / "b"), record())
    (folder / "report.html").write_text("")
    found = only(tmp_path)
    assert (found.folder, found.status, found.reason) == ("a/b", "done", "")
    assert (found.notebook, found.title, found.machine, found.wall_s) == ("03_live", "Live", "Some CPU, 2 cores", 75.0)
    assert (found.params["budget"], found.report) == (16, "a/b/report.html")


def test_result_alone_is_a_run_that_is_done(tmp_path: Path) -> None:
    write_record(tmp_path, record())
    assert (only(tmp_path).folder, only(tmp_path).status, only(tmp_path).report) == (".", "done", "")


def test_failed_run_has_its_reason(tmp_path: Path) -> None:
    write_notebook(tmp_path / "cell", error="too hot")
    assert (only(tmp_path).status, only(tmp_path).reason) == ("failed", "ValueError: too hot")
    assert only(tmp_path).wall_s == 3.0


def test_dead_kernel_is_a_failure(tmp_path: Path) -> None:
    write_notebook(tmp_path, ddtree={"failure": "DeadKernelError: Kernel died"})
    assert (only(tmp_path).status, only(tmp_path).reason) == ("failed", "DeadKernelError: Kernel died")


def test_stopped_run_says_how_far_it_came(tmp_path: Path) -> None:
    partial = {"complete": False, "prompts_done": 3, "prompts_planned": 8}
    write_record(tmp_path, record(metrics=partial))
    assert only(tmp_path).status == "unfinished"
    assert tells(only(tmp_path).reason, "3 8")
    write_notebook(tmp_path, error="3 of 8 prompts were measured (it was interrupted)")
    assert only(tmp_path).status == "unfinished"
    assert only(tmp_path).reason == "ValueError: 3 of 8 prompts were measured (it was interrupted)"


@pytest.mark.parametrize(
    ("executed", "reason"),
    [
        (1, "1 2"),
        (2, "2 result.json"),
    ],
)
def test_run_without_result_or_error_is_unfinished(tmp_path: Path, executed: int, reason: str) -> None:
    write_notebook(tmp_path, executed=executed)
    assert only(tmp_path).status == "unfinished"
    assert tells(only(tmp_path).reason, reason)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("result.json", "{", "result.json"),
        ("result.json", "[1]", "result.json schema None"),
        ("result.json", '{"schema": 1}', "result.json notebook: field required"),
        ("result.json", "\udcff", "result.json"),
        ("executed.ipynb", "{", "executed.ipynb"),
        ("executed.ipynb", '{"cells": 3}', "executed.ipynb"),
        ("executed.ipynb", '{"cells": [{}]}', "executed.ipynb"),
        ("failure.json", "{}", "failure.json"),
        ("sweep.json", "{}", "sweep.json"),
    ],
)
def test_what_cannot_be_read_is_listed_beside_the_rest(tmp_path: Path, name: str, text: str, reason: str) -> None:
    write_record(tmp_path / "good", record())
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / name).write_bytes(text.encode(errors="surrogateescape"))
    good, bad = runs_below(tmp_path)
    where = "bad/sweep.json" if name == "sweep.json" else "bad"  # a plan is no run, and a run may lie beside it
    assert (good.status, bad.folder, bad.status) == ("done", where, "unreadable")
    assert tells(bad.reason, reason)
    assert str(tmp_path) not in bad.reason


def test_run_that_ended_early_keeps_what_was_known_at_its_start(tmp_path: Path) -> None:
    write_run(write_notebook(tmp_path, executed=1, ddtree={"failure": "DeadKernelError: Kernel died"}))
    found = only(tmp_path)
    assert (found.status, found.reason) == ("failed", "DeadKernelError: Kernel died")
    assert (found.params["budget"], found.machine) == (16, "Some CPU, 2 cores")


def test_run_without_a_notebook_is_listed_from_its_start(tmp_path: Path) -> None:
    write_run(tmp_path)
    found = only(tmp_path)
    assert (found.status, found.params["budget"]) == ("unfinished", 16)
    assert found.reason == "started, but there is no result.json: it is still running, or was stopped"


LATER = {"start_time": "2026-03-02T09:00:00", "end_time": "2026-03-02T10:00:00"}
EARLIER = {"start_time": "2026-02-27T09:00:00", "end_time": "2026-02-28T10:00:00"}


@pytest.mark.parametrize("times", [LATER, EARLIER])
@pytest.mark.parametrize("name", ["run.json", "result.json"])
def test_records_of_another_run_are_not_used(tmp_path: Path, times: dict[str, str], name: str) -> None:
    write_notebook(tmp_path, times=times)
    write_run(tmp_path) if name == "run.json" else write_record(tmp_path, record())
    found = only(tmp_path)
    assert found.status == "unreadable"
    assert found.reason.startswith(f"{name} is of another run than executed.ipynb")
    assert found.params == {}


def test_result_of_another_run_is_not_used(tmp_path: Path) -> None:
    write_record(write_run(tmp_path), record(params={"budget": 5}))
    found = only(tmp_path)
    assert found.status == "unreadable"
    assert tells(found.reason, "result.json run.json")
    assert found.params["budget"] == 16


def test_planned_cells_of_a_sweep_are_listed(tmp_path: Path) -> None:
    ids = ["done", "failed", "planned"]
    cells = [{"id": name, "params": {"budget": number}} for number, name in enumerate(ids)]
    plan = {"schema": 1, "file": "f.yaml", "notebook": "03_live", "axes": {}, "cells": cells}
    (tmp_path / "sweep.json").write_text(json.dumps(plan))
    write_record(tmp_path / "cells" / "done", record())
    (tmp_path / "cells" / "failed").mkdir()
    (tmp_path / "cells" / "failed" / "failure.json").write_text('{"failure": "out of memory"}')
    found = {run.folder: run for run in runs_below(tmp_path)}
    assert [found[f"cells/{name}"].status for name in ids] == ["done", "failed", "unfinished"]
    failed = found["cells/failed"]
    assert (failed.reason, failed.notebook, failed.params) == ("out of memory", "03_live", {"budget": 1})
    assert found["cells/done"].params["budget"] == 16
    planned = found["cells/planned"]
    assert (planned.notebook, planned.params) == ("03_live", {"budget": 2})
    assert planned.reason


def test_newest_comes_first_and_hidden_folders_are_left_out(tmp_path: Path) -> None:
    for name, day in (("a", "01"), ("b", "03"), (".hidden", "05"), ("c", "02")):
        write_record(tmp_path / name, record(finished_utc=f"2026-03-{day}T00:00:00+00:00"))
    (tmp_path / "aside").mkdir()
    write_notebook(tmp_path / "0")
    assert [run.folder for run in runs_below(tmp_path)] == ["b", "c", "a", "0"]
