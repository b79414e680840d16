"""The `ddtree` command: look at the machine, fetch a model, run a notebook to one HTML file, rebuild a report."""

from importlib.metadata import version
from typing import Annotated

import typer

from ddtree.workbook.commands.console import EXIT_CODES
from ddtree.workbook.commands.doctor import doctor
from ddtree.workbook.commands.fetch import fetch
from ddtree.workbook.commands.report import report
from ddtree.workbook.commands.run import run
from ddtree.workbook.commands.sweep import sweep

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"ddtree {version('ddtree')}")
        raise typer.Exit


@app.callback(
    help=f"""DDTree speculative decoding with temperature: run the notebooks and share what they show.

\b
Examples:
  ddtree doctor                                   what is usable on this machine
  ddtree fetch                                    the default model, once
  ddtree run 03_live -f params/live/quick.yaml    a notebook to one HTML file

\b
{EXIT_CODES}
"""
)
def ddtree(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


for command in (doctor, fetch, run, sweep, report):
    app.command()(command)
