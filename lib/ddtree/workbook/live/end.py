"""How a live run ends: with its record closed, or short of its plan with a result that says so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddtree.workbook.live.measure import Measurements
from ddtree.workbook.live.record import close_record
from ddtree.workbook.opening import Run
from ddtree.workbook.records import write_traces


class IncompleteRun(RuntimeError):  # noqa: N818 (a report shows this name: it is no defect of the program)
    """Some prompts were not measured; result.json holds those that were."""


def end_if_partial(run: Run, measured: Measurements, metrics: Mapping[str, Any], *, record: Path) -> None:
    """Nothing if every prompt was measured; else traces and result.json of what there is, then IncompleteRun."""
    if not measured.stopped:
        return
    write_traces(run.out_dir, "rounds", measured.rounds)
    run.finish({**metrics, **progress(measured), "greedy_equal_float32": None})
    raise IncompleteRun(
        f"{measured.prompts_done} of {measured.prompts_planned} prompts were measured ({measured.stopped}); "
        f"another run with the same parameters and out_dir continues {record.name}"
    )


def finish(run: Run, measured: Measurements, metrics: Mapping[str, Any], *, record: Path) -> Path:
    """Write traces and result.json of a run that is complete, and close its record. Returns as `Run.finish`."""
    write_traces(run.out_dir, "rounds", measured.rounds)
    written = run.finish({**metrics, **progress(measured)})
    close_record(record)
    return written


def progress(measured: Measurements) -> dict[str, Any]:
    """prompts_done, prompts_planned and complete, for result.json."""
    return {
        "prompts_done": measured.prompts_done,
        "prompts_planned": measured.prompts_planned,
        "complete": not measured.stopped,
    }
