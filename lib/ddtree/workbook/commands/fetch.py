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
      ddtree fetch                          the default model, in the cache that `ddtree doctor` names
      ddtree fetch smollm2-135m --verify    what is damaged there is made again
      ddtree fetch Qwen/Qwen3-8B            a hub model, in the hub's own cache

    \b
    Exit codes:
      0  the model is there, and its folder is printed
      1  it could not be had, or what is cached cannot be verified
      2  an argument is wrong
    """
    from ddtree.models import zoo  # loads torch

    try:
        folder = zoo.verify(model) if verify else zoo.fetch(model)
    except (OSError, ValueError, RuntimeError) as error:
        stop(f"{model} could not be fetched: {error}", RUN_FAILED)
    typer.echo(folder)
