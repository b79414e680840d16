"""The parameters of 02_kernel."""

from typing import Annotated

from pydantic import Field

from ddtree.workbook.params.fields import Backend, DraftTemperature, MinP, Text, TopK, TopP
from ddtree.workbook.params.one_tree import OneTreeParams


class KernelParams(OneTreeParams):
    """02_kernel: the sampling verify, step by step and against its own distribution."""

    top_k: TopK = 0
    top_p: TopP = 1.0
    min_p: MinP = 0.0
    draft_temperature: DraftTemperature = 1.0
    backend: Backend = "auto"
    law_draws: Annotated[
        int, Field(ge=0, le=1_000_000, description="verify calls of each law that is tested; 0 skips the tests")
    ] = 20000
    out_dir: Text = Field("outputs/kernel", description="folder of the results, relative to the project root")
