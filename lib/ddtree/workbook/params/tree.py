"""The parameters of 01_tree."""

from pydantic import Field

from ddtree.workbook.params.fields import DraftTemperature, Text
from ddtree.workbook.params.one_tree import OneTreeParams


class TreeParams(OneTreeParams):
    """01_tree: one draft tree, looked at closely."""

    draft_temperature: DraftTemperature = 1.0
    out_dir: Text = Field("outputs/tree", description="folder of the results, relative to the project root")
