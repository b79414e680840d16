"""How a cell ended, read from its folder: result.json means done, failure.json says why it is not."""

import json
from pathlib import Path

from ddtree.workbook.records import RESULT_NAME, RecordError, read_result, write_text

FAILURE_NAME = "failure.json"


def is_done(folder: Path) -> bool:
    """Whether a whole result is there: a run that was stopped half way leaves one that calls itself incomplete."""
    try:
        record = read_result(folder)
    except RecordError:
        return False
    return record.get("metrics", {}).get("complete") is not False


def failure_of(folder: Path) -> str | None:
    """Why the cell failed; None if it has not. Raises RecordError for a failure.json that is none."""
    path = folder / FAILURE_NAME
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["failure"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"The record {path} cannot be read: {error}.") from error


def write_failure(folder: Path, reason: str) -> None:
    """Say why the cell failed; a partial result goes, so that nothing takes it for a whole one. Raises RecordError."""
    (folder / RESULT_NAME).unlink(missing_ok=True)
    write_text(folder / FAILURE_NAME, json.dumps({"failure": reason}, ensure_ascii=False) + "\n")


def forget(folder: Path) -> None:
    """Remove what an earlier try of an unfinished cell said of its end; its other files stay."""
    for name in (RESULT_NAME, FAILURE_NAME):
        (folder / name).unlink(missing_ok=True)
