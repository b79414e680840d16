"""The verify backends of one device: which proved themselves, and why another did not."""

from collections.abc import Sequence

from ddtree.verify import BackendStatus
from ddtree.workbook.doctor.finding import Finding


def examine_backends(device: str, report: Sequence[BackendStatus]) -> Finding:
    """`report` is `backend_report(device)`, best first: the first usable one is what "auto" takes.

    A better backend that cannot run is a warning on a GPU alone: on a CPU none but the reference could.
    """
    subject = f"verify on {device}"
    usable = [status for status in report if status.usable]
    others = "".join(f"; {status.name} cannot: {status.reason}" for status in report if not status.usable)
    if not usable:
        return Finding(subject, "missing", f"no backend runs{others}")
    detail = "".join(f"{status.name} ({status.reason}), " for status in usable).removesuffix(", ") + others
    best_runs = report[0].usable or device == "cpu"
    return Finding(subject, "ok" if best_runs else "warning", detail)
