"""Figures of a sweep: temperature against budget, from the frames of `ddtree.workbook.sweep`."""
