"""The parameters of 02_kernel."""

from typing import Annotated

from pydantic import Field

from ddtree.workbook.params.fields import (
    Backend,
    DraftTemperature,
    MinP,
    Prompt,
    SkipTokens,
    TargetTemperature,
    Text,
    TopK,
    TopkCap,
    TopP,
    TreeBudget,
)
from ddtree.workbook.params.pair import ModelParams


class KernelParams(ModelParams):
    """02_kernel: the sampling verify, step by step and against its own distribution."""

    prompt: Prompt = "Explain in three sentences why the sky is blue."
    skip_tokens: SkipTokens = 8
    budget: TreeBudget = 16
    topk_cap: TopkCap = 4
    temperature: TargetTemperature = 0.6
    top_k: TopK = 0
    top_p: TopP = 1.0
    min_p: MinP = 0.0
    draft_temperature: DraftTemperature = 1.0
    backend: Backend = "auto"
    law_draws: Annotated[
        int, Field(ge=0, le=1_000_000, description="verify calls of each law that is tested; 0 skips the tests")
    ] = 20000
    out_dir: Text = Field("outputs/kernel", description="folder of the results, relative to the project root")
