"""What a notebook takes that stops at one tree of one prompt."""

from ddtree.workbook.params.fields import Prompt, SkipTokens, TargetTemperature, TopkCap, TreeBudget
from ddtree.workbook.params.pair import ModelParams


class OneTreeParams(ModelParams):
    """Which tree: the prompt, how far it is decoded first, and how the tree is built."""

    prompt: Prompt = "Explain in three sentences why the sky is blue."
    skip_tokens: SkipTokens = 8
    budget: TreeBudget = 16
    topk_cap: TopkCap = 4
    temperature: TargetTemperature = 0.6
