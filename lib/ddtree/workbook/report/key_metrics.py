"""Pick the few numbers of a run that an index shows, by notebook."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ddtree.workbook.report.run_info import RunRecord

GENERIC_NUMBERS = 4
LONGEST_METRIC = 60  # characters of a text among the generic numbers


@dataclass(frozen=True, slots=True)
class KeyMetrics:
    """Lines to read, the number to sort them by (None: none), and mean acceptance lengths, one a line."""

    lines: tuple[str, ...] = ()
    sort_by: float | None = None
    acceptance: tuple[str, ...] = ()
    best_acceptance: float | None = None


def key_metrics_of(record: RunRecord) -> KeyMetrics:
    """The key metrics of a run. Metrics of another form than the notebook's are shown as generic ones."""
    known: dict[str, Callable[[Mapping[str, Any]], KeyMetrics]]
    known = {"02_kernel": _kernel, "03_live": _live, "04_serving": _serving}
    try:
        return known.get(record.notebook, _generic)(record.metrics)
    except (KeyError, TypeError, ValueError):
        return _generic(record.metrics)


def _live(metrics: Mapping[str, Any]) -> KeyMetrics:
    """The fastest drafted setting of each temperature, with its 95 % interval."""
    drafted = [row for row in metrics["summary"] if row["strategy"] != "autoregressive"]
    best: dict[float, Mapping[str, Any]] = {}
    for row in sorted(drafted, key=lambda row: (row["temperature"], -row["speedup"])):
        best.setdefault(row["temperature"], row)
    return KeyMetrics(
        lines=tuple(
            f"T={t:g}: {row['speedup']:.2f}× ({row['speedup_lo']:.2f} to {row['speedup_hi']:.2f}) {row['label']}"
            for t, row in best.items()
        ),
        sort_by=max((row["speedup"] for row in best.values()), default=None),
        acceptance=tuple(f"T={t:g}: {row['acceptance']:.2f}" for t, row in best.items()),
        best_acceptance=max((row["acceptance"] for row in best.values()), default=None),
    )


def _serving(metrics: Mapping[str, Any]) -> KeyMetrics:
    """DDTREE over DFLASH in the smallest batch at the lowest cost, marked where identity layers emulate that cost."""
    rated = metrics["best"]
    least = min(((row["extra_layers"], row["batch"]) for row in rated), default=(0, 0))
    here = [row for row in rated if (row["extra_layers"], row["batch"]) == least]
    emulated = " (emulated cost)" if least[0] else ""
    return KeyMetrics(
        lines=tuple(
            f"T={row['temperature']:g}: {row['over_dflash']:.2f}× DFLASH ({row['over_dflash_lo']:.2f} to "
            f"{row['over_dflash_hi']:.2f}) {row['name']}{emulated}"
            for row in sorted(here, key=lambda row: row["temperature"])
        ),
        sort_by=max((row["over_dflash"] for row in here), default=None),
    )


def _kernel(metrics: Mapping[str, Any]) -> KeyMetrics:
    tests = metrics["laws"]
    lines = [f"{tests['rejected']} of {tests['tested']} distributions rejected"]
    if tests.get("controls_run"):
        lines.append(f"{tests['controls_rejected']} of {tests['controls_run']} negative controls rejected")
    return KeyMetrics(tuple(lines), float(tests["rejected"]))


def _generic(metrics: Mapping[str, Any]) -> KeyMetrics:
    found = list(_scalars(metrics, ""))[:GENERIC_NUMBERS]
    numbers = [float(value) for _, value in found if isinstance(value, int | float) and not isinstance(value, bool)]
    return KeyMetrics(tuple(f"{name} {_written(value)}" for name, value in found), numbers[0] if numbers else None)


def _scalars(metrics: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, int | float | bool | str]]:
    """Numbers and short texts, the top level first; `pair` is left out, because the index shows the model elsewhere."""
    for name, value in metrics.items():
        if isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= LONGEST_METRIC):
            yield f"{prefix}{name}".replace("_", " "), value
    for name, value in metrics.items():
        if isinstance(value, Mapping) and not prefix and name != "pair":
            yield from _scalars(value, f"{name} ")


def _written(value: int | float | bool | str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
