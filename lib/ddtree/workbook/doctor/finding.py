"""One line of the doctor's report; "missing" is kept for what the workbook on a CPU cannot do without."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "missing"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one subject, and the command or act that would mend it ("" where there is nothing to mend)."""

    subject: str
    state: State
    detail: str
    remedy: str = ""
