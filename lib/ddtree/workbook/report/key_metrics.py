"""Pick the few numbers of a run that an index shows, by notebook."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

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


class _Setting(BaseModel):
    temperature: float
    label: str
    strategy: str
    speedup: float
    speedup_lo: float
    speedup_hi: float
    acceptance: float


class _Best(BaseModel):
    """The fastest DDTREE server of one batch size, temperature and cost, against DFLASH."""

    extra_layers: int
    batch: int
    temperature: float
    name: str
    over_dflash: float
    over_dflash_lo: float
    over_dflash_hi: float


class _Tests(BaseModel):
    tested: int
    rejected: int
    controls_run: int = 0
    controls_rejected: int = 0


def key_metrics_of(record: RunRecord) -> KeyMetrics:
    """The key metrics of a run. Metrics of another form than the notebook's are shown as generic ones."""
    known: dict[str, Callable[[Mapping[str, Any]], KeyMetrics]]
    known = {"02_kernel": _kernel, "03_live": _live, "04_serving": _serving}
    reader = known.get(record.notebook, _generic)
    try:
        return reader(record.metrics)
    except (ValidationError, KeyError):
        return _generic(record.metrics)


def _live(metrics: Mapping[str, Any]) -> KeyMetrics:
    """The fastest drafted setting of each temperature, with its 95 % interval."""
    settings = TypeAdapter(list[_Setting]).validate_python(metrics["summary"])
    drafted = [setting for setting in settings if setting.strategy != "autoregressive"]
    best = [
        max((setting for setting in drafted if setting.temperature == temperature), key=lambda each: each.speedup)
        for temperature in sorted({setting.temperature for setting in drafted})
    ]
    return KeyMetrics(
        lines=tuple(
            f"T={each.temperature:g}: {each.speedup:.2f}× ({each.speedup_lo:.2f} to {each.speedup_hi:.2f}) {each.label}"
            for each in best
        ),
        sort_by=max((each.speedup for each in best), default=None),
        acceptance=tuple(f"T={each.temperature:g}: {each.acceptance:.2f}" for each in best),
        best_acceptance=max((each.acceptance for each in best), default=None),
    )


def _serving(metrics: Mapping[str, Any]) -> KeyMetrics:
    """DDTREE over DFLASH in the smallest batch at the lowest cost, marked where identity layers emulate that cost."""
    rated = TypeAdapter(list[_Best]).validate_python(metrics["best"])
    least = min((each.extra_layers for each in rated), default=0)
    here = [each for each in rated if each.extra_layers == least]
    batch = min((each.batch for each in here), default=0)
    shown = sorted((each for each in here if each.batch == batch), key=lambda each: each.temperature)
    emulated = " (emulated cost)" if least else ""
    return KeyMetrics(
        lines=tuple(
            f"T={each.temperature:g}: {each.over_dflash:.2f}× DFLASH ({each.over_dflash_lo:.2f} to "
            f"{each.over_dflash_hi:.2f}) {each.name}{emulated}"
            for each in shown
        ),
        sort_by=max((each.over_dflash for each in shown), default=None),
    )


def _kernel(metrics: Mapping[str, Any]) -> KeyMetrics:
    tests = _Tests.model_validate(metrics["laws"])
    lines = [f"{tests.rejected} of {tests.tested} distributions rejected"]
    if tests.controls_run:
        lines.append(f"{tests.controls_rejected} of {tests.controls_run} negative controls rejected")
    return KeyMetrics(tuple(lines), float(tests.rejected))


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
