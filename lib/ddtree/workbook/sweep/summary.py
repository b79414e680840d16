"""The summary of a sweep: the notebook 05_sweep on the sweep's folder, with a report of its own."""

from pathlib import Path

from ddtree.workbook.params import PARAMS
from ddtree.workbook.paths import project_root
from ddtree.workbook.run import RunOutcome, run_notebook

NOTEBOOK = "05_sweep"
FOLDER_NAME = "summary"


def summary_notebook() -> Path | None:
    """The notebook that summarises a sweep, if the project has it."""
    path = project_root() / "notebooks" / f"{NOTEBOOK}.ipynb"
    return path if path.is_file() and NOTEBOOK in PARAMS else None


def summarise(notebook: Path, folder: Path) -> RunOutcome:
    """Run `notebook` on the sweep in `folder`, finished or partial. Raises RecordError and OSError of the disk."""
    root = project_root()
    shown = folder.relative_to(root) if folder.is_relative_to(root) else folder
    out_dir = shown / FOLDER_NAME
    params = PARAMS[NOTEBOOK].from_mapping({"sweep_dir": shown.as_posix(), "out_dir": out_dir.as_posix()})
    return run_notebook(notebook, params, folder / FOLDER_NAME)
