"""Define the `ddtree` command: check the machine, fetch a model, run a notebook or a sweep, build reports."""

from __future__ import annotations

import difflib
import os
import re
import sys
import tempfile
from importlib.metadata import requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from typer.core import TyperGroup

from ddtree.workbook.params import PARAMS, NotebookParams, ParameterError
from ddtree.workbook.params_validation import YamlError, load_mapping, parse_value
from ddtree.workbook.paths import ProjectRootError, project_root, resolve
from ddtree.workbook.records import EXECUTED_NAME, REPORT_NAME, RecordError
from ddtree.workbook.report.pdf import PdfError, find_browser, print_pdf
from ddtree.workbook.sweep.grid import Plan, SweepFileError, cell_folder, plan_of, read_grid

if TYPE_CHECKING:
    from ddtree.workbook.sweep.executor import Jobs

SWEEPS = "outputs/sweeps"
RUN_FAILED = 1
BAD_PARAMETERS = 2
EXTRAS = ("notebooks", "sweeps")  # those of pyproject.toml without which some commands cannot run
PACKAGE_NAMES = {"bs4": "beautifulsoup4"}  # by module, where the names differ
EXIT_CODES = """\b
Exit codes, of every command:
  0  all went well
  1  the work was started and failed, or something that it needs is missing
  2  a parameter or argument is wrong; nothing was started"""


def stop(message: str, code: int) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(code)


class Commands(TyperGroup):
    """The commands. One that needs a package which is not installed, but comes with an extra, stops with a sentence."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            package, extra = _origin_of((error.name or "").partition(".")[0])
            if not extra:
                raise
            command = f'{sys.executable} -m pip install "ddtree[{extra}]"'
            needs = f"`ddtree {ctx.invoked_subcommand}` needs {package}, which is not installed"
            stop(f"{needs}; it comes with the extra {extra}: {command}", RUN_FAILED)


def _origin_of(module: str) -> tuple[str, str]:
    """The package of `module` and the extra of EXTRAS that installs it, "" if none does."""
    package = canonicalize_name(PACKAGE_NAMES.get(module, module))
    lines = [line for line in map(Requirement, requires("ddtree") or ()) if canonicalize_name(line.name) == package]
    brought = (name for name in EXTRAS for line in lines if line.marker and line.marker.evaluate({"extra": name}))
    return package, next(brought, "")


app = typer.Typer(
    cls=Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
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
    from ddtree.workbook.doctor.machine_checks import as_json, as_text, run_checks, usable

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
    profile = file.stem if file else "default"
    try:
        path = _find_notebook(notebook)
        params = _parameters(path.stem, file, parameter or [], out, profile)
        out_dir = resolve(params.out_dir)
    except (ParameterError, YamlError, ProjectRootError, typer.BadParameter) as error:
        stop(str(error), BAD_PARAMETERS)

    from ddtree.workbook.runner import run_notebook  # loads Jupyter

    typer.echo(f"Running {path.stem} ({profile}) in {shown(out_dir)}", err=True)
    try:
        outcome = run_notebook(path, params, out_dir)
    except OSError as error:
        _stop_for_folder(out_dir, error)
    absent = "none: the run did not get that far" if outcome.failure else "none: the notebook wrote none"
    for label, made in (("notebook", outcome.executed), ("result", outcome.result), ("report", outcome.report)):
        typer.echo(f"{label:<9} {shown(made) if made.is_file() else absent}")
    if outcome.failure:
        stop(f"The run of {path.stem} failed: {outcome.failure}.", RUN_FAILED)


def _stop_for_folder(folder: Path, error: OSError) -> NoReturn:
    known = isinstance(error, RecordError)
    stop(str(error) if known else f"The folder {folder} cannot be used: {error.strerror or error}.", RUN_FAILED)


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


def _parameters(stem: str, file: Path | None, assignments: list[str], out: Path | None, profile: str) -> NotebookParams:
    if stem not in PARAMS:
        raise typer.BadParameter(
            f"The notebook {stem} has no checked parameters; `ddtree run` knows {', '.join(PARAMS)}."
        )
    values = load_mapping(file) if file else {}
    for text in assignments:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise typer.BadParameter(f"-p {text} is not an assignment; name=value is needed, as in -p budget=32.")
        values[name] = parse_value(name, value)
    if out is not None:
        values["out_dir"] = shown(out.absolute())
    values.setdefault("out_dir", f"outputs/{re.sub(r'^[0-9]+_', '', stem)}-{profile}")
    return PARAMS[stem].from_mapping(values)


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
    try:
        grid = read_grid(file)
        folder = resolve(SWEEPS) / file.stem
    except (SweepFileError, ProjectRootError) as error:
        stop(str(error), BAD_PARAMETERS)
    plan = plan_of(grid, file=shown(file), folder=folder)
    if not resolve(f"notebooks/{plan.notebook}.ipynb").is_file():
        stop(f"{file}: there is no notebook notebooks/{plan.notebook}.ipynb; nothing was started.", BAD_PARAMETERS)
    if find_spec("snakemake") is None:  # it runs as a program, which would say so too late
        raise ModuleNotFoundError(name="snakemake")

    from ddtree.workbook.sweep.executor import LOCAL, ExecutorError, local_jobs, remote_jobs  # loads Jupyter

    try:
        if executor in (None, LOCAL) and profile is None:
            how = local_jobs(jobs or 1, plan.cells)
        else:
            how = remote_jobs(executor, profile, jobs)
    except ExecutorError as error:
        stop(str(error), BAD_PARAMETERS)
    if dry:
        _dry_run(plan, folder, how)
    else:
        _run(plan, folder, how, summary)


def _dry_run(plan: Plan, folder: Path, jobs: Jobs) -> None:
    """Show the plan; Snakemake checks the unfinished cells in an empty temporary folder, so no file is left behind."""
    from ddtree.workbook.sweep.executor import Tally, dry_run

    todo = Tally(plan, folder).todo
    for cell in plan.cells:
        typer.echo(f"{'run ' if cell.id in todo else 'done'}  {cell.id}")
    _say_start(plan, folder, len(todo))
    if not todo:
        return
    with tempfile.TemporaryDirectory(prefix="ddtree-") as empty:
        left = [cell for cell in plan.cells if cell.id in todo]
        Plan(plan.file, plan.notebook, plan.axes, left).write(Path(empty))
        possible, words = dry_run(Path(empty), jobs)
    if not jobs.local or not possible:
        typer.echo(words)
    if not possible:
        stop("Snakemake cannot run this plan; its own words are above.", RUN_FAILED)


def _run(plan: Plan, folder: Path, jobs: Jobs, with_summary: bool) -> None:
    from ddtree.workbook.sweep.executor import SNAKEMAKE_LOG, BusyError, Engine, Tally, summarise, summary_notebook

    summary_failure = ""
    try:
        with Engine(plan, folder) as engine:
            plan.write(folder)
            todo = Tally(plan, folder).todo
            _say_start(plan, folder, len(todo))
            if jobs.note and todo:
                typer.echo(jobs.note)
            ending = engine.run(jobs)
            done = len(plan.cells) - len(ending.failures) - len(ending.waiting)
            if with_summary and done and not ending.stopped and (notebook := summary_notebook()):
                outcome = summarise(notebook, folder)
                typer.echo(f"summary  {shown(outcome.report)}")
                summary_failure = outcome.failure
    except BusyError as error:
        stop(str(error), RUN_FAILED)
    except OSError as error:
        _stop_for_folder(folder, error)
    for cell_id, reason in ending.failures.items():
        typer.echo(f"failed   {shown(cell_folder(folder, cell_id))}: {reason}", err=True)
    counts = [f"{done} done"]
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
        typer.echo("The same command tries the failed cells again.", err=True)
    if summary_failure or ending.failures:
        raise typer.Exit(RUN_FAILED)


def _say_start(plan: Plan, folder: Path, todo: int) -> None:
    typer.echo(f"{_cells(plan)}: {len(plan.cells) - todo} done, {todo} to run, in {shown(folder)}")


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
    from ddtree.workbook.report.html import export
    from ddtree.workbook.report.index import NoRunsError, runs_below, write_index
    from ddtree.workbook.report.run_info import NotebookError

    try:
        program = find_browser(browser) if pdf else ""
    except PdfError as error:
        stop(str(error), RUN_FAILED)
    problems = []
    for folder in folders:
        try:
            if index:
                typer.echo(shown(write_index(folder)))
                continue
            executed = folder / EXECUTED_NAME
            if not executed.is_file() and (below := len(runs_below(folder))):
                raise NotebookError(
                    f"{folder} has no {EXECUTED_NAME}, but there are {below} run(s) in or below it; "
                    f"`ddtree report --index {folder}` lists them."
                )
            html = export(executed, folder / REPORT_NAME)
            typer.echo(shown(html))
            if pdf:
                typer.echo(shown(print_pdf(html, html.with_suffix(".pdf"), program)))
        except (NotebookError, RecordError, NoRunsError, PdfError) as error:
            problems.append(str(error))
    if problems:
        stop("\n".join(problems), RUN_FAILED)
