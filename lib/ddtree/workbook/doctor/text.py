"""Findings as people and as programs read them."""

import dataclasses
import json
from collections.abc import Sequence

from ddtree.workbook.doctor.finding import Finding


def usable(findings: Sequence[Finding]) -> bool:
    """Whether nothing that the workbook on a CPU needs is missing."""
    return all(finding.state != "missing" for finding in findings)


def as_text(findings: Sequence[Finding]) -> str:
    """A line for each finding, its remedy below it, and the verdict at the end."""
    width = max((len(finding.subject) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{finding.state:<8} {finding.subject:<{width}}  {finding.detail}")
        if finding.remedy:
            lines.append(f"{'':<8} {'':<{width}}  > {finding.remedy}")
    missing = [finding.subject for finding in findings if finding.state == "missing"]
    verdict = f"Not usable yet: {', '.join(missing)}." if missing else "The workbook is usable here."
    return "\n".join([*lines, "", verdict])


def as_json(findings: Sequence[Finding]) -> str:
    """{"usable": bool, "findings": [{"subject", "state", "detail", "remedy"}]}."""
    plain = [dataclasses.asdict(finding) for finding in findings]
    return json.dumps({"usable": usable(findings), "findings": plain}, indent=1)
