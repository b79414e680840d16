"""The `ddtree` command: fetch a model, run a notebook to one HTML file, rebuild a report."""

import typer

from ddtree.workbook.commands.fetch import fetch
from ddtree.workbook.commands.report import report
from ddtree.workbook.commands.run import run

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="DDTree speculative decoding with temperature: run the notebooks and share what they show.\n\n"
    "Exit codes: 0 all went well, 1 the run (or fetch, or report) failed, 2 the parameters or arguments are wrong.",
)
for command in (fetch, run, report):
    app.command()(command)
