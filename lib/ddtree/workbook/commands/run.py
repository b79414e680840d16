"""`ddtree run`: a notebook with checked parameters, to one HTML file."""

import difflib
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from ddtree.workbook.commands.console import BAD_PARAMETERS, RUN_FAILED, shown, stop
from ddtree.workbook.params import PARAMS, NotebookParams, ParameterError
from ddtree.workbook.paths import ProjectRootError, project_root, resolve
from ddtree.workbook.plain_yaml import YamlError, load_mapping, parse_value


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

    \b
    Examples:
      ddtree run 03_live -f params/live/quick.yaml     results in outputs/live-quick
      ddtree run 03_live -p 'temperatures=[0.0, 1.0]' -p budget=32 -o outputs/wide
      ddtree run notebooks/01_tree.ipynb

    \b
    Exit codes:
      0  the run went through
      1  the run failed; the report shows where
      2  a parameter or argument is wrong; nothing was started
    """
    try:
        path = _find_notebook(notebook)
        profile = file.stem if file else "default"
        params, out_dir = _parameters(path.stem, file, parameter or [], out, profile)
    except (ParameterError, YamlError, ProjectRootError, typer.BadParameter) as error:
        stop(str(error), BAD_PARAMETERS)

    from ddtree.workbook.records import RecordError
    from ddtree.workbook.run import run_notebook  # loads Jupyter

    typer.echo(f"Running {path.stem} ({profile}) in {shown(out_dir)}", err=True)
    try:
        outcome = run_notebook(path, params, out_dir)
    except RecordError as error:
        stop(str(error), RUN_FAILED)
    except OSError as error:
        stop(f"The folder {out_dir} cannot be used: {error.strerror or error}.", RUN_FAILED)
    absent = "none: the run did not get that far" if outcome.failure else "none: the notebook wrote none"
    for label, made in (("notebook", outcome.executed), ("result", outcome.result), ("report", outcome.report)):
        typer.echo(f"{label:<9} {shown(made) if made.is_file() else absent}")
    if outcome.failure:
        stop(f"The run of {path.stem} failed: {outcome.failure}.", RUN_FAILED)


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


def _parameters(
    stem: str, file: Path | None, assignments: list[str], out: Path | None, profile: str
) -> tuple[NotebookParams, Path]:
    if stem not in PARAMS:
        raise typer.BadParameter(
            f"The notebook {stem} has no checked parameters; `ddtree run` knows {', '.join(PARAMS)}."
        )
    values = load_mapping(file) if file else {}
    values |= dict(_assignment(text) for text in assignments)
    if out is not None:
        values["out_dir"] = shown(out.absolute())
    values.setdefault("out_dir", f"outputs/{re.sub(r'^[0-9]+_', '', stem)}-{profile}")
    params = PARAMS[stem].from_mapping(values)
    return params, resolve(params.out_dir)


def _assignment(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise typer.BadParameter(f"-p {text} is no assignment; name=value is needed, as in -p budget=32.")
    return name.strip(), parse_value(name.strip(), value)
