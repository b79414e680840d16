"""`ddtree report`: the one-file report of a run, made again."""

from pathlib import Path
from typing import Annotated

import typer

from ddtree.workbook.commands.console import RUN_FAILED, shown, stop


def report(
    out_dir: Annotated[Path, typer.Argument(help="Folder of a run, which holds executed.ipynb.")],
) -> None:
    """Build report.html again from the executed notebook of a run.

    \b
    Example:
      ddtree report outputs/live-quick
    """
    from ddtree.workbook.records import RecordError
    from ddtree.workbook.report.export import ReportError, export
    from ddtree.workbook.run import EXECUTED_NAME, REPORT_NAME

    try:
        typer.echo(shown(export(out_dir / EXECUTED_NAME, out_dir / REPORT_NAME)))
    except (ReportError, RecordError) as error:
        stop(str(error), RUN_FAILED)
