"""`ddtree fetch`: a model into the cache."""

from typing import Annotated

import typer

from ddtree.workbook.commands.console import RUN_FAILED, stop


def fetch(
    model: Annotated[str, typer.Argument(help="Zoo name, hub id or folder of the target.")] = "smollm2-135m",
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the contents of what is cached; fetch again what is damaged.")
    ] = False,
) -> None:
    """Fetch a model into the cache and print its folder.

    \b
    Examples:
      ddtree fetch
      ddtree fetch smollm2-135m --verify
    """
    from ddtree.models import zoo  # loads torch

    try:
        folder = zoo.verify(model) if verify else zoo.fetch(model)
    except (OSError, ValueError, RuntimeError) as error:
        stop(f"{model} could not be fetched: {error}", RUN_FAILED)
    typer.echo(folder)
