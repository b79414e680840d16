"""`ddtree doctor`: what is usable on this machine, what is not, and what would mend it."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ddtree.workbook.commands.console import BAD_PARAMETERS, RUN_FAILED, shown, stop
from ddtree.workbook.paths import ProjectRootError


def doctor(
    json: Annotated[bool, typer.Option("--json", help="For programs: one JSON object on standard output.")] = False,
) -> None:
    """Look at this machine: packages, processor, GPU, verify backends, models, Jupyter, and what serving needs.

    Each line is ok, a warning (the workbook runs without it, and the line tells what does not), or missing (the
    workbook on a CPU needs it); the line below begins with > and tells what would mend it. Nothing is changed.

    \b
    Examples:
      ddtree doctor
      ddtree doctor --json | jq '.findings[] | select(.state == "missing")'

    \b
    Exit codes:
      0  the workbook is usable here
      1  something it needs is missing or broken
      2  an argument is wrong, or this is not the repository
    """
    from ddtree.workbook.doctor.examination import examine  # loads Jupyter, and torch later
    from ddtree.workbook.doctor.text import as_json, as_text, usable

    try:
        findings = examine(shown(Path(sys.executable)))
    except ProjectRootError as error:
        stop(str(error), BAD_PARAMETERS)
    typer.echo(as_json(findings) if json else as_text(findings))
    if not usable(findings):
        raise typer.Exit(RUN_FAILED)
