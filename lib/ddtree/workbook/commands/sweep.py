"""`ddtree sweep`: a notebook over a grid of parameters, and the summary of all cells."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ddtree.workbook.commands.console import BAD_PARAMETERS, RUN_FAILED, shown, stop
from ddtree.workbook.paths import ProjectRootError, resolve

if TYPE_CHECKING:
    from ddtree.workbook.sweep.engine import Ending
    from ddtree.workbook.sweep.jobs import Jobs
    from ddtree.workbook.sweep.plan import Cell, Plan

SWEEPS = "outputs/sweeps"


def sweep(
    file: Annotated[Path, typer.Argument(help="Sweep file: notebook, fixed values, grid.")],
    jobs: Annotated[
        int | None, typer.Option("-j", "--jobs", min=1, help="Cells at once [1; with a profile what it says].")
    ] = None,
    dry: Annotated[bool, typer.Option("-n", "--dry-run", help="Check, show the cells, start nothing.")] = False,
    executor: Annotated[
        str | None, typer.Option("--executor", help="slurm, or another executor of Snakemake [local].")
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", help="Snakemake profile: folder or name, instead of the shipped one.")
    ] = None,
    summary: Annotated[bool, typer.Option("--summary/--no-summary", help="Run 05_sweep on the cells.")] = True,
) -> None:
    """Run a notebook once for every cell of a grid, and summarise the cells.

    Every cell is checked before the first one starts. A cell that is done is not run again, so that the same
    command continues a sweep that was stopped, retries what failed and adds what the grid has got new.
    Results are in outputs/sweeps/NAME/cells, the summary in outputs/sweeps/NAME/summary/report.html.

    \b
    Examples:
      ddtree sweep params/sweeps/temperature-budget.yaml
      ddtree sweep params/sweeps/temperature-budget.yaml -n
      ddtree sweep params/sweeps/temperature-budget.yaml --executor slurm -j 16

    \b
    Exit codes:
      0  every cell is done
      1  a cell or the summary failed, or the sweep was stopped
      2  the sweep file or an argument is wrong; nothing was started
    """
    from ddtree.workbook.sweep.grid import SweepFileError, read_grid
    from ddtree.workbook.sweep.plan import plan_of

    try:
        grid = read_grid(file)
        folder = resolve(SWEEPS) / file.stem
    except (SweepFileError, ProjectRootError) as error:
        stop(str(error), BAD_PARAMETERS)
    plan = plan_of(grid, file=shown(file), folder=folder)
    if not resolve(f"notebooks/{plan.notebook}.ipynb").is_file():
        stop(f"{file}: there is no notebook notebooks/{plan.notebook}.ipynb; nothing was started.", BAD_PARAMETERS)

    from ddtree.workbook.sweep.jobs import ExecutorError

    try:
        if dry:
            _dry_run(plan, folder, jobs, executor, profile)
        else:
            _run(plan, folder, _jobs(plan.cells, jobs, executor, profile), summary)
    except ExecutorError as error:
        stop(str(error), BAD_PARAMETERS)


def _jobs(cells: list[Cell], count: int | None, executor: str | None, profile: str | None) -> Jobs:
    from ddtree.workbook.sweep.jobs import LOCAL, local_jobs, remote_jobs

    if executor in (None, LOCAL) and profile is None:
        return local_jobs(count or 1, cells)
    return remote_jobs(executor, profile, count)


def _dry_run(plan: Plan, folder: Path, count: int | None, executor: str | None, profile: str | None) -> None:
    """Shows the plan; Snakemake looks at what is to be run from an empty folder, so that nothing is left behind."""
    from ddtree.workbook.sweep.engine import dry_run
    from ddtree.workbook.sweep.plan import Plan
    from ddtree.workbook.sweep.tally import Tally

    todo = Tally(plan, folder).todo
    for cell in plan.cells:
        typer.echo(f"{'run ' if cell.id in todo else 'done'}  {cell.id}")
    _say_start(plan, folder, len(todo))
    left = [cell for cell in plan.cells if cell.id in todo]
    jobs = _jobs(left, count, executor, profile)
    if not left:
        return
    with tempfile.TemporaryDirectory(prefix="ddtree-") as empty:
        Plan(plan.file, plan.notebook, plan.axes, left).write(Path(empty))
        possible, words = dry_run(Path(empty), jobs)
    if not jobs.local or not possible:
        typer.echo(words)
    if not possible:
        stop("Snakemake cannot run this plan; its own words are above.", RUN_FAILED)


def _run(plan: Plan, folder: Path, jobs: Jobs, with_summary: bool) -> None:
    from ddtree.workbook.records import RecordError
    from ddtree.workbook.sweep.engine import BusyError, Engine
    from ddtree.workbook.sweep.tally import Tally

    try:
        with Engine(plan, folder) as engine:
            plan.write(folder)
            todo = Tally(plan, folder).todo
            _say_start(plan, folder, len(todo))
            if jobs.note and todo:
                typer.echo(jobs.note)
            ending = engine.run(jobs)
            done = len(plan.cells) - len(ending.failures) - len(ending.waiting)
            summary_failure = _summarise(folder) if with_summary and done and not ending.stopped else ""
    except (BusyError, RecordError) as error:
        stop(str(error), RUN_FAILED)
    except OSError as error:
        stop(f"The folder {folder} cannot be used: {error.strerror or error}.", RUN_FAILED)
    _say_ending(plan, folder, ending, summary_failure)


def _summarise(folder: Path) -> str:
    """Why the summary failed; "" if it did not, or if the project has no notebook for it."""
    from ddtree.workbook.sweep.summary import summarise, summary_notebook  # loads Jupyter

    notebook = summary_notebook()
    if notebook is None:
        return ""
    outcome = summarise(notebook, folder)
    typer.echo(f"summary  {shown(outcome.report)}")
    return outcome.failure


def _say_start(plan: Plan, folder: Path, todo: int) -> None:
    done = len(plan.cells) - todo
    typer.echo(f"{_cells(plan)}: {done} done, {todo} to run, in {shown(folder)}")


def _say_ending(plan: Plan, folder: Path, ending: Ending, summary_failure: str) -> None:
    from ddtree.workbook.sweep.engine import LOG_NAME
    from ddtree.workbook.sweep.plan import cell_folder

    for cell_id, reason in ending.failures.items():
        typer.echo(f"failed   {shown(cell_folder(folder, cell_id))}: {reason}", err=True)
    counts = [f"{len(plan.cells) - len(ending.failures) - len(ending.waiting)} done"]
    counts += [f"{len(ending.failures)} failed"] if ending.failures else []
    counts += [f"{len(ending.waiting)} to run"] if ending.waiting else []
    typer.echo(f"{_cells(plan)}: {', '.join(counts)}, in {shown(folder)}")
    if ending.stopped and ending.waiting:
        stop("The sweep was stopped; the same command continues it.", RUN_FAILED)
    if ending.waiting:
        stop(f"Snakemake gave up with code {ending.code}; {shown(folder / LOG_NAME)} says why.", RUN_FAILED)
    if summary_failure:
        typer.echo(f"The summary failed: {summary_failure}.", err=True)
    if ending.failures:
        stop("The same command tries the failed cells again.", RUN_FAILED)
    if summary_failure:
        raise typer.Exit(RUN_FAILED)


def _cells(plan: Plan) -> str:
    return f"{len(plan.cells)} cell{'s' if len(plan.cells) > 1 else ''}"
