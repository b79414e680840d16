"""The result.json of a run as a report reads it: of the expected form, or an error that says what is wrong."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ddtree.workbook.records import RecordError, read_result


class Machine(BaseModel):
    """What a run ran on."""

    model_config = ConfigDict(frozen=True)

    python: str
    platform: str
    cpu: str
    physical_cores: int | None
    memory_gib: float
    torch_threads: int | None
    gpu: str | None
    packages: dict[str, str | None]

    @property
    def name(self) -> str:
        """The GPU if one was used, else processor and cores."""
        return self.gpu or f"{self.cpu}, {self.physical_cores or 'unknown'} cores"


class RunRecord(BaseModel):
    """One result.json. `finished_utc` has a time zone, `wall_s` is in seconds; fields of later versions are ignored."""

    model_config = ConfigDict(frozen=True)

    notebook: str
    finished_utc: datetime
    wall_s: float = Field(ge=0, allow_inf_nan=False)
    environment: Machine
    params: dict[str, Any]
    metrics: dict[str, Any]
    seed: int | None = None
    peak_rss_mib: float | None = None
    git_revision: str | None = None

    @property
    def revision(self) -> str:
        """The commit in short, "" outside git."""
        commit, _, dirty = (self.git_revision or "").partition("-")
        return commit[:10] + (" with local changes" if dirty else "")


def read_record(path: Path) -> RunRecord:
    """The record in the file `path`. Raises RecordError, which names the file and every field that is wrong."""
    try:
        record = RunRecord.model_validate(read_result(path))
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg'].lower()}" for e in error.errors())
        raise RecordError(f"The result {path} is not of a ddtree run ({wrong}).") from error
    return record.model_copy(update={"finished_utc": in_utc(record.finished_utc)})


def in_utc(moment: datetime) -> datetime:
    """`moment` with the time zone UTC; one without a zone is taken for UTC."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
