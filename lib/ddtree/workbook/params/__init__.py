"""The parameters of each notebook: names, types, ranges, units and defaults, the same in model and notebook."""

from ddtree.workbook.params.base import NotebookParams, ParameterError
from ddtree.workbook.params.kernel import KernelParams
from ddtree.workbook.params.live import LiveParams
from ddtree.workbook.params.pair import ModelParams, PairParams
from ddtree.workbook.params.serving import ServingParams
from ddtree.workbook.params.speed import SpeedParams
from ddtree.workbook.params.sweep import SweepParams
from ddtree.workbook.params.tree import TreeParams

__all__ = [
    "PARAMS",
    "KernelParams",
    "LiveParams",
    "ModelParams",
    "NotebookParams",
    "PairParams",
    "ParameterError",
    "ServingParams",
    "SpeedParams",
    "SweepParams",
    "TreeParams",
]

PARAMS: dict[str, type[NotebookParams]] = {
    "01_tree": TreeParams,
    "02_kernel": KernelParams,
    "03_live": LiveParams,
    "04_serving": ServingParams,
    "05_sweep": SweepParams,
    "07_speed": SpeedParams,
}
