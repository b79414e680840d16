"""Figures of the workbook: pure functions from data to `plotly.graph_objects.Figure`."""

from ddtree.workbook.plots.calibration import draw_reliability
from ddtree.workbook.plots.laws import draw_laws
from ddtree.workbook.plots.live import draw_acceptance, draw_speed
from ddtree.workbook.plots.rounds import draw_acceptance_by_depth, draw_histogram, draw_stage_times
from ddtree.workbook.plots.theme import dress, strategy_colour, temperature_colour, template
from ddtree.workbook.plots.tree import draw_links, draw_mask, draw_tree, tree_table

__all__ = [
    "draw_acceptance",
    "draw_acceptance_by_depth",
    "draw_histogram",
    "draw_laws",
    "draw_links",
    "draw_mask",
    "draw_reliability",
    "draw_speed",
    "draw_stage_times",
    "draw_tree",
    "dress",
    "strategy_colour",
    "temperature_colour",
    "template",
    "tree_table",
]
