"""What every command says to its user: exit codes, paths as they are shown, and the last sentence before it stops."""

import os
from pathlib import Path
from typing import NoReturn

import typer

from ddtree.workbook.paths import project_root

RUN_FAILED = 1
BAD_PARAMETERS = 2
EXIT_CODES = """Exit codes, of every command:
  0  all went well
  1  the work was begun and failed, or (doctor) something needed is missing
  2  a parameter or argument is wrong; nothing was begun"""


def shown(path: Path) -> str:
    """A path under the project root without that root: short, and the same on every machine."""
    path = Path(os.path.normpath(path.absolute()))
    root = project_root()
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def stop(message: str, code: int) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(code)
