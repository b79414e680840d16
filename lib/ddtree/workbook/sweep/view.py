"""Show a sweep in the notebook: findings, tables and figures of each group of cells."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from pandas.io.formats.style import Styler

from ddtree.workbook.records import rows_of
from ddtree.workbook.stats import Bootstrap
from ddtree.workbook.sweep.analysis import (
    BeyondEntropy,
    accepted_depths,
    beyond_entropy,
    compare_budgets,
    describe_auto,
    describe_best,
    entropy_bins,
    explain,
    measure_points,
    reference_label,
    split_slowdown,
)
from ddtree.workbook.sweep.plots import (
    draw_acceptance_map,
    draw_budgets,
    draw_cost,
    draw_depths,
    draw_entropy,
    draw_slowdown,
    draw_speedup_map,
    ordered_labels,
)
from ddtree.workbook.sweep.results import ONLY, STATUSES, Sweep
from ddtree.workbook.tables import plain, with_interval
from ddtree.workbook.theme import capitalised, empty_figure

NOTHING_TO_SPLIT = "No decoder was measured at two temperatures, so no slow-down can be explained."


def findings(view: SweepView) -> dict[str, Any]:
    """Progress, the cells that are missing and why, and points, best budgets, slow-down and entropy by setting."""
    cells = view.sweep.cells
    return {
        "progress": view.sweep.progress,
        "cells": {status: sum(cell.status == status for cell in cells) for status in STATUSES},
        "missing": {cell.id: cell.reason for cell in cells if cell.reason},
        "settings": {setting: _of_setting(view, setting) for setting in view.settings},
    }


def answer(view: SweepView, setting: str) -> str:
    """Why the highest temperature is slower than the lowest, for the reference decoder, in plain words."""
    split = view.slowdown(setting)
    rows = {row["label"]: row for row in split.to_dict("records")}
    row = rows.get(view.reference(setting))
    if row is None:
        return NOTHING_TO_SPLIT
    control = rows.get("autoregressive")
    if control is None:
        return explain(row)
    interval = f"{control['speed_lo']:.2f} to {control['speed_hi']:.2f}"
    return f"{explain(row)} Autoregressive decoding in the same runs: factor {control['speed']:.2f} ({interval})."


def _of_setting(view: SweepView, setting: str) -> dict[str, Any]:
    decoder = view.reference(setting)
    budgets = view.budgets(setting)
    beyond = view.beyond(setting, decoder)
    temperatures: list[float] = list(budgets["temperature"].unique()) if len(budgets) else []
    return {
        "reference": decoder,
        "points": rows_of(view.points[view.points["slice"] == setting].drop(columns="slice")),
        "best_budget": {f"{t:g}": describe_best(budgets, t) for t in temperatures},
        "auto": {f"{t:g}": said for t in temperatures if (said := describe_auto(budgets, t))},
        "budgets": rows_of(budgets),
        "slowdown": answer(view, setting),
        "slowdown_parts": rows_of(view.slowdown(setting)),
        "beyond_entropy": None if beyond is None else dataclasses.asdict(beyond) | {"sentence": beyond.explain()},
    }


def cells_table(sweep: Sweep) -> Styler:
    """Cells by status: how many, and which and why where something went wrong."""
    rows = []
    for status in STATUSES:
        mine = [cell for cell in sweep.cells if cell.status == status]
        if status in ("measured", "not run"):
            rows += [{"status": status, "cells": len(mine), "which": "", "why": ""}] if mine else []
        else:
            rows += [{"status": status, "cells": 1, "which": cell.id, "why": cell.reason} for cell in mine]
    return plain(pd.DataFrame(rows))


def points_table(points: pd.DataFrame) -> Styler:
    """Speed, speed-up, tokens and milliseconds per round of every point, with 95 % intervals and counts."""
    shown = {
        "setting": points["slice"],
        "T": points["temperature"].map("{:g}".format),
        "decoder": points["label"],
        "tokens/s": with_interval(points, "tokens_per_s", ".1f"),
        "speed-up": with_interval(points, "speedup", ".2f"),
        "tokens per round": with_interval(points, "acceptance", ".2f"),
        "ms per round": with_interval(points, "round_ms", ".1f"),
        "prompts": points["prompts"],
        "rounds": points["rounds"],
    }
    frame = pd.DataFrame(shown)
    return plain(frame.drop(columns="setting") if set(points["slice"]) == {ONLY} else frame)


@dataclass(frozen=True, slots=True)
class SweepView:
    """A sweep, its points, and the bootstrap that every interval is made with.

    Methods take a setting of `settings` and a decoder of `decoders`. A setting is the name of
    a group of cells. Where a figure has nothing to show (one temperature, no tree, a decoder that the setting lacks),
    it is an empty one that says why.
    """

    sweep: Sweep
    points: pd.DataFrame
    bootstrap: Bootstrap

    @classmethod
    def of(cls, sweep: Sweep, *, resamples: int, seed: int) -> SweepView:
        """Measures the points of every group."""
        bootstrap = (resamples, seed)
        return cls(sweep, measure_points(sweep.rounds, bootstrap), bootstrap)

    @property
    def settings(self) -> list[str]:
        """The names of the groups, the one with most measured cells first."""
        return self.sweep.groups

    @property
    def decoders(self) -> list[str]:
        """Labels that draft, of any group."""
        drafting = self.points[self.points["strategy"] != "autoregressive"]
        return ordered_labels(set(drafting["label"]))

    def reference(self, setting: str) -> str:
        """The decoder that titles describe; see `reference_label`."""
        return reference_label(self.points[self.points["slice"] == setting])

    def acceptance_map(self, setting: str) -> go.Figure:
        """Tokens per round by temperature and budget."""
        return draw_acceptance_map(self.points, self.sweep.missing(setting), setting)

    def speedup_map(self, setting: str) -> go.Figure:
        """Speed-up by temperature and budget."""
        return draw_speedup_map(self.points, self.sweep.missing(setting), setting)

    def budgets(self, setting: str) -> pd.DataFrame:
        """`compare_budgets` of the setting."""
        return compare_budgets(self._rounds(setting), self.bootstrap)

    def budget_figure(self, setting: str) -> go.Figure:
        """Speed-up against budget, the best marked."""
        budgets = self.budgets(setting)
        if budgets.empty:
            return empty_figure("No tree of a fixed budget was measured, so there is no best one")
        return draw_budgets(budgets, setting)

    def depth_figure(self, setting: str, decoder: str) -> go.Figure:
        """Acceptance by depth against temperature."""
        rounds = self._rounds(setting, decoder)
        if rounds.empty:
            return empty_figure(_absent(decoder))
        return draw_depths(accepted_depths(rounds, self.bootstrap), setting, decoder)

    def cost_figure(self, setting: str) -> go.Figure:
        """Tokens per round against milliseconds per round."""
        return draw_cost(self.points, setting)

    def beyond(self, setting: str, decoder: str) -> BeyondEntropy | None:
        """`beyond_entropy` of the setting and decoder."""
        return beyond_entropy(self._rounds(setting, decoder), self.bootstrap)

    def entropy_figure(self, setting: str, decoder: str) -> go.Figure:
        """Acceptance against entropy."""
        rounds = self._rounds(setting, decoder)
        if rounds.empty:
            return empty_figure(_absent(decoder))
        return draw_entropy(entropy_bins(rounds, self.bootstrap), self.beyond(setting, decoder), setting, decoder)

    def slowdown(self, setting: str) -> pd.DataFrame:
        """`split_slowdown` of the setting."""
        return split_slowdown(self._rounds(setting), self.bootstrap)

    def slowdown_figure(self, setting: str, decoder: str) -> go.Figure:
        """Where the speed goes from the lowest to the highest temperature; the title describes `decoder`."""
        split = self.slowdown(setting)
        if split.empty or decoder not in set(split["label"]):
            reason = f"{capitalised(decoder)} was not measured at two temperatures, so no change can be split"
            return empty_figure(reason)
        return draw_slowdown(split, setting, decoder)

    def _rounds(self, setting: str, decoder: str | None = None) -> pd.DataFrame:
        rounds = self.sweep.rounds
        mine = rounds[rounds["slice"] == setting]
        return mine if decoder is None else mine[mine["label"] == decoder]


def _absent(decoder: str) -> str:
    return f"{capitalised(decoder)} was not measured in this setting"
