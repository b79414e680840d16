"""Find the project's root, so that a relative path means the same place whatever folder a kernel starts in."""

import tomllib
from pathlib import Path

PROJECT_NAME = "ddtree"


class ProjectRootError(RuntimeError):
    """No folder above the starting points holds the project's pyproject.toml."""


def project_root() -> Path:
    """The folder whose pyproject.toml names the project "ddtree".

    Walks up from the current folder first, then from this package's own folder.
    Raises ProjectRootError when neither way finds it.
    """
    starts = (Path.cwd(), Path(__file__).resolve().parent)
    for start in starts:
        for folder in (start, *start.parents):
            if _is_project(folder):
                return folder
    raise ProjectRootError(
        f"No pyproject.toml of the project {PROJECT_NAME!r} was found in or above {starts[0]} or {starts[1]}; "
        "start from inside the repository."
    )


def resolve(path: str | Path) -> Path:
    """`path` as an absolute path; a relative one is relative to the project root, and ~ is the home folder."""
    path = Path(path).expanduser()
    return path if path.is_absolute() else project_root() / path


def _is_project(folder: Path) -> bool:
    marker = folder / "pyproject.toml"
    if not marker.is_file():
        return False
    try:
        content = tomllib.loads(marker.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProjectRootError(f"{marker} cannot be read as TOML: {error}.") from error
    return bool(content.get("project", {}).get("name") == PROJECT_NAME)
