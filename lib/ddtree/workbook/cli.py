"""Define the `ddtree` command: check the machine, fetch a model, run a notebook or a sweep, build reports."""

from __future__ import annotations

import difflib
import os
import re
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ddtree.workbook.params import PARAMS, NotebookParams, ParameterError
from ddtree.workbook.params_validation import YamlError, load_mapping, parse_value
from ddtree.workbook.paths import ProjectRootError, project_root, resolve

if TYPE_CHECKING:
    from ddtree.workbook.sweep.executor import Ending, Jobs
    from ddtree.workbook.sweep.grid import Cell, Plan

SWEEPS = "outputs/sweeps"
RUN_FAILED = 1
BAD_PARAMETERS = 2
EXIT_CODES = """\b
Exit codes, of every command:
  0  all went well
  1  the work was started and failed, or (doctor) something needed is missing
  2  a parameter or argument is wrong; nothing was started"""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def help_end(*examples: str) -> str:
    """The end of a help text: examples, one a line, and the exit codes."""
    return "\n".join(["\b", "Examples:", *(f"  {example}" for example in examples), "", EXIT_CODES])


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"ddtree {version('ddtree')}")
        raise typer.Exit


@app.callback(
    epilog=help_end(
        "ddtree doctor                                   what is usable on this machine",
        "ddtree fetch                                    the default model, once",
        "ddtree run 03_live -f params/live/quick.yaml    a notebook to one HTML file",
    )
)
def ddtree(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """DDTree speculative decoding with temperature: run the notebooks and share what they show."""


def shown(path: Path) -> str:
    """A path under the project root without that root: short, and the same on every machine."""
    path = Path(os.path.normpath(path.absolute()))
    root = project_root()
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def stop(message: str, code: int) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(code)


@app.command(
    epilog=help_end(
        "ddtree doctor",
        "ddtree doctor --json | jq '.checks[] | select(.state == \"missing\")'",
    )
)
def doctor(
    json: Annotated[bool, typer.Option("--json", help="For programs: one JSON object on standard output.")] = False,
) -> None:
    """Check this machine: packages, processor, GPU, verify backends, models, Jupyter, and what serving needs.

    Each line is ok, a warning (the workbook runs without it, and the line tells what does not), or missing (the
    workbook on a CPU needs it); the line below begins with > and tells what fixes it. Nothing is changed.
    """
    from ddtree.workbook.doctor.machine_checks import (  # loads Jupyter, and torch later
        as_json,
        as_text,
        run_checks,
        usable,
    )

    try:
        results = run_checks(shown(Path(sys.executable)))
    except ProjectRootError as error:
        stop(str(error), BAD_PARAMETERS)
    typer.echo(as_json(results) if json else as_text(results))
    if not usable(results):
        raise typer.Exit(RUN_FAILED)


@app.command(
    epilog=help_end(
        "ddtree fetch                          the default model, in the cache that `ddtree doctor` names",
        "ddtree fetch smollm2-135m --verify    what is damaged there is made again",
        "ddtree fetch Qwen/Qwen3-8B            a hub model, in the hub's own cache",
        "ddtree fetch --drafter                the default model's drafter, as a server loads it",
    )
)
def fetch(
    model: Annotated[str, typer.Argument(help="Zoo name, hub id or folder of the target.")] = "smollm2-135m",
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the contents of what is cached; fetch again what is damaged.")
    ] = False,
    drafter: Annotated[
        bool, typer.Option("--drafter", help="Print the folder of the drafter that comes with it instead.")
    ] = False,
) -> None:
    """Fetch a model into the cache and print its folder."""
    if verify and drafter:
        stop("--verify checks the target, --drafter asks for its drafter; give one of the two.", BAD_PARAMETERS)
    from ddtree.models import zoo  # loads torch

    try:
        fetched = zoo.verify if verify else zoo.fetch_drafter if drafter else zoo.fetch
        folder = fetched(model)
    except (OSError, ValueError, RuntimeError) as error:
        stop(f"{model} could not be fetched: {error}", RUN_FAILED)
    typer.echo(folder)


@app.command(
    epilog=help_end(
        "ddtree run 03_live -f params/live/quick.yaml     results in outputs/live-quick",
        "ddtree run 03_live -p 'temperatures=[0.0, 1.0]' -p budget=32 -o outputs/wide",
        "ddtree run notebooks/01_tree.ipynb",
    )
)
def run(
    notebook: Annotated[str, typer.Argument(help="Path of a notebook, or its name in notebooks/: 03_live.")],
    file: Annotated[Path | None, typer.Option("-f", "--file", help="YAML file of parameters.")] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder of the results [outputs/NAME-PROFILE].")
    ] = None,
    parameter: Annotated[
        list[str] | None, typer.Option("-p", "--parameter", help="name=value in YAML; wins over the file.")
    ] = None,
) -> None:
    """Run a notebook with checked parameters, and build its one-file report.

    Parameters that the file does not name have their defaults. They are checked before anything starts.
    The folder of results gets executed.ipynb, result.json and report.html; the report is also built when
    the run fails.
    """
    try:
        path = _find_notebook(notebook)
        profile = file.stem if file else "default"
        params, out_dir = _parameters(path.stem, file, parameter or [], out, profile)
    except (ParameterError, YamlError, ProjectRootError, typer.BadParameter) as error:
        stop(str(error), BAD_PARAMETERS)

    from ddtree.workbook.records import RecordError
    from ddtree.workbook.runner import run_notebook  # loads Jupyter

    typer.echo(f"Running {path.stem} ({profile}) in {shown(out_dir)}", err=True)
    try:
        outcome = run_notebook(path, params, out_dir)
    except RecordError as error:
        stop(str(error), RUN_FAILED)
    except OSError as error:
        stop(f"The folder {out_dir} cannot be used: {error.strerror or error}.", RUN_FAILED)
    absent = "none: the run did not get that far" if outcome.failure else "none: the notebook wrote none"
    for label, made in (("notebook", outcome.executed), ("result", outcome.result), ("report", outcome.report)):
        typer.echo(f"{label:<9} {shown(made) if made.is_file() else absent}")
    if outcome.failure:
        stop(f"The run of {path.stem} failed: {outcome.failure}.", RUN_FAILED)


def _find_notebook(name: str) -> Path:
    path = Path(name)
    if path.is_file():
        return path.resolve()
    folder = project_root() / "notebooks"
    named = folder / f"{path.name.removesuffix('.ipynb')}.ipynb"
    if path.parent == Path() and named.is_file():
        return named
    known = sorted(found.stem for found in folder.glob("*.ipynb"))
    near = difflib.get_close_matches(path.stem, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"notebooks/ holds {', '.join(known) or 'none'}."
    raise typer.BadParameter(f"There is no notebook {name}; {hint}")


def _parameters(
    stem: str, file: Path | None, assignments: list[str], out: Path | None, profile: str
) -> tuple[NotebookParams, Path]:
    if stem not in PARAMS:
        raise typer.BadParameter(
            f"The notebook {stem} has no checked parameters; `ddtree run` knows {', '.join(PARAMS)}."
        )
    values = load_mapping(file) if file else {}
    values |= dict(_assignment(text) for text in assignments)
    if out is not None:
        values["out_dir"] = shown(out.absolute())
    values.setdefault("out_dir", f"outputs/{re.sub(r'^[0-9]+_', '', stem)}-{profile}")
    params = PARAMS[stem].from_mapping(values)
    return params, resolve(params.out_dir)


def _assignment(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise typer.BadParameter(f"-p {text} is not an assignment; name=value is needed, as in -p budget=32.")
    return name.strip(), parse_value(name.strip(), value)


@app.command(
    epilog=help_end(
        "ddtree sweep params/sweeps/temperature-budget.yaml",
        "ddtree sweep params/sweeps/temperature-budget.yaml -n",
        "ddtree sweep params/sweeps/temperature-budget.yaml --executor slurm -j 16",
    )
)
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

    Every cell is checked before the first one starts. A cell that is done is not run again, so the same command
    continues a sweep that was stopped, retries failed cells and adds cells that are new in the grid.
    Results are in outputs/sweeps/NAME/cells, the summary in outputs/sweeps/NAME/summary/report.html.
    """
    from ddtree.workbook.sweep.grid import SweepFileError, plan_of, read_grid

    try:
        grid = read_grid(file)
        folder = resolve(SWEEPS) / file.stem
    except (SweepFileError, ProjectRootError) as error:
        stop(str(error), BAD_PARAMETERS)
    plan = plan_of(grid, file=shown(file), folder=folder)
    if not resolve(f"notebooks/{plan.notebook}.ipynb").is_file():
        stop(f"{file}: there is no notebook notebooks/{plan.notebook}.ipynb; nothing was started.", BAD_PARAMETERS)

    from ddtree.workbook.sweep.executor import ExecutorError

    try:
        if dry:
            _dry_run(plan, folder, jobs, executor, profile)
        else:
            _run(plan, folder, _jobs(plan.cells, jobs, executor, profile), summary)
    except ExecutorError as error:
        stop(str(error), BAD_PARAMETERS)


def _jobs(cells: list[Cell], count: int | None, executor: str | None, profile: str | None) -> Jobs:
    from ddtree.workbook.sweep.executor import LOCAL, local_jobs, remote_jobs

    if executor in (None, LOCAL) and profile is None:
        return local_jobs(count or 1, cells)
    return remote_jobs(executor, profile, count)


def _dry_run(plan: Plan, folder: Path, count: int | None, executor: str | None, profile: str | None) -> None:
    """Show the plan; Snakemake checks the unfinished cells in an empty temporary folder, so no file is left behind."""
    from ddtree.workbook.sweep.executor import Tally, dry_run
    from ddtree.workbook.sweep.grid import Plan

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
    from ddtree.workbook.sweep.executor import BusyError, Engine, Tally

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
    from ddtree.workbook.sweep.executor import summarise, summary_notebook  # loads Jupyter

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
    from ddtree.workbook.sweep.executor import SNAKEMAKE_LOG
    from ddtree.workbook.sweep.grid import cell_folder

    for cell_id, reason in ending.failures.items():
        typer.echo(f"failed   {shown(cell_folder(folder, cell_id))}: {reason}", err=True)
    counts = [f"{len(plan.cells) - len(ending.failures) - len(ending.waiting)} done"]
    counts += [f"{len(ending.failures)} failed"] if ending.failures else []
    counts += [f"{len(ending.waiting)} to run"] if ending.waiting else []
    typer.echo(f"{_cells(plan)}: {', '.join(counts)}, in {shown(folder)}")
    if ending.stopped and ending.waiting:
        stop("The sweep was stopped; the same command continues it.", RUN_FAILED)
    if ending.waiting:
        stop(f"Snakemake gave up with code {ending.code}; {shown(folder / SNAKEMAKE_LOG)} says why.", RUN_FAILED)
    if summary_failure:
        typer.echo(f"The summary failed: {summary_failure}.", err=True)
    if ending.failures:
        stop("The same command tries the failed cells again.", RUN_FAILED)
    if summary_failure:
        raise typer.Exit(RUN_FAILED)


def _cells(plan: Plan) -> str:
    return f"{len(plan.cells)} cell{'s' if len(plan.cells) > 1 else ''}"


@app.command(
    epilog=help_end(
        "ddtree report outputs/live-quick                     report.html in that folder",
        "ddtree report outputs/live-quick outputs/tree-quick  one in each",
        "ddtree report outputs/live-quick --pdf               and report.pdf",
        "ddtree report --index outputs                        outputs/index.html: a table of all runs below",
        "ddtree report --index outputs/sweeps/temperature     the same of one sweep",
    )
)
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="OUT_DIR", help="Folders of runs, or with --index above.")],
    index: Annotated[
        bool, typer.Option("--index", help="Write index.html over all runs in and below each folder.")
    ] = False,
    pdf: Annotated[bool, typer.Option("--pdf", help="Also print each report to report.pdf; needs Chromium.")] = False,
    browser: Annotated[
        str | None, typer.Option("--browser", help="Chromium for --pdf [CHROME, then chromium, google-chrome on PATH].")
    ] = None,
) -> None:
    """Build report.html again from the executed notebook of each run, or one page that lists many runs."""
    if index and pdf:
        stop("--index makes a page to search, which has no PDF; ask for the PDF of a run.", BAD_PARAMETERS)
    if browser and not pdf:
        stop("--browser names the program that prints a PDF, so it needs --pdf.", BAD_PARAMETERS)
    make = _index if index else _printer(browser) if pdf else _report
    problems = [problem for folder in folders if (problem := _attempt(make, folder))]
    if problems:
        stop("\n".join(problems), RUN_FAILED)


def _attempt(make: Callable[[Path], list[Path]], folder: Path) -> str:
    """Print what `make` wrote for `folder`; why it failed, "" when it did not."""
    from ddtree.workbook.records import RecordError
    from ddtree.workbook.report.index import NoRunsError
    from ddtree.workbook.report.pdf import PdfError
    from ddtree.workbook.report.run_info import NotebookError

    try:
        for path in make(folder):
            typer.echo(shown(path))
    except (NotebookError, RecordError, NoRunsError, PdfError) as error:
        return str(error)
    return ""


def _report(folder: Path) -> list[Path]:
    from ddtree.workbook.records import EXECUTED_NAME, REPORT_NAME
    from ddtree.workbook.report.html import export
    from ddtree.workbook.report.index import runs_below
    from ddtree.workbook.report.run_info import NotebookError

    executed = folder / EXECUTED_NAME
    if folder.is_dir() and not executed.is_file() and (below := len(runs_below(folder))):
        raise NotebookError(
            f"{folder} has no {EXECUTED_NAME}, but there are {below} run(s) in or below it; "
            f"`ddtree report --index {folder}` lists them."
        )
    return [export(executed, folder / REPORT_NAME)]


def _index(folder: Path) -> list[Path]:
    from ddtree.workbook.report.index import write_index

    return [write_index(folder)]


def _printer(browser: str | None) -> Callable[[Path], list[Path]]:
    from ddtree.workbook.report.pdf import PdfError, find_browser, print_pdf

    try:
        program = find_browser(browser)
    except PdfError as error:
        stop(str(error), RUN_FAILED)

    def make(folder: Path) -> list[Path]:
        (html,) = _report(folder)
        return [html, print_pdf(html, html.with_suffix(".pdf"), program)]

    return make
