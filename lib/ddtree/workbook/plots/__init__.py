"""Figures of the workbook: pure functions from data to `plotly.graph_objects.Figure`."""

from ddtree.workbook.plots.calibration import draw_reliability
from ddtree.workbook.plots.chosen import draw_chosen_budgets
from ddtree.workbook.plots.laws import draw_laws
from ddtree.workbook.plots.live import draw_acceptance, draw_speed
from ddtree.workbook.plots.mask import draw_mask
from ddtree.workbook.plots.rounds import draw_acceptance_by_depth, draw_histogram, draw_stage_times
from ddtree.workbook.plots.serving.acceptance import draw_served_acceptance, draw_served_histogram
from ddtree.workbook.plots.serving.rounds import draw_served_rounds
from ddtree.workbook.plots.serving.speedup import draw_speedup
from ddtree.workbook.plots.serving.throughput import draw_throughput
from ddtree.workbook.plots.speed.attention import draw_attention
from ddtree.workbook.plots.speed.builders import draw_builders
from ddtree.workbook.plots.speed.chain import draw_chain
from ddtree.workbook.plots.speed.rounds import draw_rounds
from ddtree.workbook.plots.speed.stages import draw_stages
from ddtree.workbook.plots.speed.verify import draw_verify
from ddtree.workbook.plots.sweep.budgets import draw_budgets
from ddtree.workbook.plots.sweep.cost import draw_cost
from ddtree.workbook.plots.sweep.depths import draw_depths
from ddtree.workbook.plots.sweep.entropy import draw_entropy
from ddtree.workbook.plots.sweep.maps import draw_acceptance_map, draw_speedup_map
from ddtree.workbook.plots.sweep.slowdown import draw_slowdown
from ddtree.workbook.plots.theme import dress, strategy_colour, temperature_colour, template
from ddtree.workbook.plots.tree import draw_links, draw_tree, tree_table

__all__ = [
    "draw_acceptance",
    "draw_acceptance_by_depth",
    "draw_acceptance_map",
    "draw_attention",
    "draw_budgets",
    "draw_builders",
    "draw_chain",
    "draw_chosen_budgets",
    "draw_cost",
    "draw_depths",
    "draw_entropy",
    "draw_histogram",
    "draw_laws",
    "draw_links",
    "draw_mask",
    "draw_reliability",
    "draw_rounds",
    "draw_served_acceptance",
    "draw_served_histogram",
    "draw_served_rounds",
    "draw_slowdown",
    "draw_speed",
    "draw_speedup",
    "draw_speedup_map",
    "draw_stage_times",
    "draw_stages",
    "draw_throughput",
    "draw_tree",
    "draw_verify",
    "dress",
    "strategy_colour",
    "temperature_colour",
    "template",
    "tree_table",
]
