"""A sweep as a notebook asks about it: each figure for one setting (a slice) and one decoder, whatever is missing."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go

from ddtree.workbook.plots import (
    draw_acceptance_map,
    draw_budgets,
    draw_cost,
    draw_depths,
    draw_entropy,
    draw_slowdown,
    draw_speedup_map,
)
from ddtree.workbook.plots.sweep.common import capital, draw_nothing, ordered_labels
from ddtree.workbook.sweep.best import compare_budgets, reference_label
from ddtree.workbook.sweep.depths import accepted_depths
from ddtree.workbook.sweep.entropy import BeyondEntropy, beyond_entropy, entropy_bins
from ddtree.workbook.sweep.points import measure_points
from ddtree.workbook.sweep.resample import Bootstrap
from ddtree.workbook.sweep.results import Sweep
from ddtree.workbook.sweep.slowdown import split_slowdown


@dataclass(frozen=True, slots=True)
class SweepView:
    """A sweep, its points, and the bootstrap that every interval is made with.

    Methods take a setting of `settings` and a decoder of `decoders`. Where a figure has nothing to show (one
    temperature, no tree, a decoder that the setting lacks), it is an empty one that says why.
    """

    sweep: Sweep
    points: pd.DataFrame
    bootstrap: Bootstrap

    @classmethod
    def of(cls, sweep: Sweep, *, resamples: int, seed: int) -> SweepView:
        """Measures the points of every slice."""
        bootstrap = (resamples, seed)
        return cls(sweep, measure_points(sweep.rounds, bootstrap), bootstrap)

    @property
    def settings(self) -> list[str]:
        """The slices, the one with most measured cells first."""
        return self.sweep.slices

    @property
    def decoders(self) -> list[str]:
        """Labels that draft, of any slice."""
        drafting = self.points[self.points["strategy"] != "autoregressive"]
        return ordered_labels(set(drafting["label"]))

    def reference(self, setting: str) -> str:
        """The decoder that titles speak of; see `reference_label`."""
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
            return draw_nothing("No tree of a fixed budget was measured, so there is no best one")
        return draw_budgets(budgets, setting)

    def depth_figure(self, setting: str, decoder: str) -> go.Figure:
        """Acceptance by depth against temperature."""
        rounds = self._rounds(setting, decoder)
        if rounds.empty:
            return draw_nothing(_absent(decoder))
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
            return draw_nothing(_absent(decoder))
        return draw_entropy(entropy_bins(rounds, self.bootstrap), self.beyond(setting, decoder), setting, decoder)

    def slowdown(self, setting: str) -> pd.DataFrame:
        """`split_slowdown` of the setting."""
        return split_slowdown(self._rounds(setting), self.bootstrap)

    def slowdown_figure(self, setting: str, decoder: str) -> go.Figure:
        """Where the speed goes from the lowest to the highest temperature; the title speaks of `decoder`."""
        split = self.slowdown(setting)
        if split.empty or decoder not in set(split["label"]):
            return draw_nothing(f"{capital(decoder)} was not measured at two temperatures, so no change can be split")
        return draw_slowdown(split, setting, decoder)

    def _rounds(self, setting: str, decoder: str | None = None) -> pd.DataFrame:
        rounds = self.sweep.rounds
        mine = rounds[rounds["slice"] == setting]
        return mine if decoder is None else mine[mine["label"] == decoder]


def _absent(decoder: str) -> str:
    return f"{capital(decoder)} was not measured in this setting"
