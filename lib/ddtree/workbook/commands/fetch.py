"""`ddtree fetch`: a model into the cache."""

from typing import Annotated

import typer

from ddtree.workbook.commands.console import BAD_PARAMETERS, RUN_FAILED, stop


def fetch(
    model: Annotated[str, typer.Argument(help="Zoo name, hub id or folder of the target.")] = "smollm2-135m",
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the contents of what is cached; fetch again what is damaged.")
    ] = False,
    drafter: Annotated[
        bool, typer.Option("--drafter", help="Print the folder of the drafter that comes with it instead.")
    ] = False,
) -> None:
    """Fetch a model into the cache and print its folder.

    \b
    Examples:
      ddtree fetch                          the default model, in the cache that `ddtree doctor` names
      ddtree fetch smollm2-135m --verify    what is damaged there is made again
      ddtree fetch Qwen/Qwen3-8B            a hub model, in the hub's own cache
      ddtree fetch --drafter                the default model's drafter, as a server loads it

    \b
    Exit codes:
      0  the model is there, and its folder is printed
      1  it could not be had, or what is cached cannot be verified
      2  an argument is wrong
    """
    if verify and drafter:
        stop("--verify checks the target, --drafter asks for its drafter; give one of the two.", BAD_PARAMETERS)
    from ddtree.models import zoo  # loads torch

    try:
        fetched = zoo.verify if verify else zoo.fetch_drafter if drafter else zoo.fetch
        folder = fetched(model)
    except (OSError, ValueError, RuntimeError) as error:
        stop(f"{model} could not be fetched: {error}", RUN_FAILED)
    typer.echo(folder)
