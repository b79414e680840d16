"""`ddtree report`: the one-file report of a run made again, its PDF, and one page over many runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from ddtree.workbook.commands.console import BAD_PARAMETERS, RUN_FAILED, shown, stop


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
    """Build report.html again from the executed notebook of each run, or one page that lists many runs.

    \b
    Examples:
      ddtree report outputs/live-quick                     report.html in that folder
      ddtree report outputs/live-quick outputs/tree-quick  one in each
      ddtree report outputs/live-quick --pdf               and report.pdf
      ddtree report --index outputs                        outputs/index.html: a table of all runs below
      ddtree report --index outputs/sweeps/temperature     the same of one sweep

    \b
    Exit codes:
      0  everything was written
      1  something could not be; the rest was
      2  the options contradict each other; nothing was written
    """
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
    from ddtree.workbook.report.export import ReportError
    from ddtree.workbook.report.index import NoRunsError
    from ddtree.workbook.report.pdf import PdfError

    try:
        for path in make(folder):
            typer.echo(shown(path))
    except (ReportError, RecordError, NoRunsError, PdfError) as error:
        return str(error)
    return ""


def _report(folder: Path) -> list[Path]:
    from ddtree.workbook.report.export import ReportError, export
    from ddtree.workbook.report.runs import runs_below
    from ddtree.workbook.run import EXECUTED_NAME, REPORT_NAME

    executed = folder / EXECUTED_NAME
    if folder.is_dir() and not executed.is_file() and (below := len(runs_below(folder))):
        raise ReportError(
            f"{folder} holds no {EXECUTED_NAME}, but {below} run(s) in or below it; "
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
