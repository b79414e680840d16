"""The parameters of 01_tree."""

from pydantic import Field

from ddtree.workbook.params.fields import (
    DraftTemperature,
    Prompt,
    SkipTokens,
    TargetTemperature,
    Text,
    TopkCap,
    TreeBudget,
)
from ddtree.workbook.params.pair import ModelParams


class TreeParams(ModelParams):
    """01_tree: one draft tree, looked at closely."""

    prompt: Prompt = "Explain in three sentences why the sky is blue."
    skip_tokens: SkipTokens = 8
    budget: TreeBudget = 16
    topk_cap: TopkCap = 4
    temperature: TargetTemperature = 0.6
    draft_temperature: DraftTemperature = 1.0
    out_dir: Text = Field("outputs/tree", description="folder of the results, relative to the project root")
