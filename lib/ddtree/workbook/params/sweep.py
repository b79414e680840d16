"""The parameters of 05_sweep."""

from typing import Annotated, Literal

from pydantic import Field

from ddtree.workbook.params.base import NotebookParams
from ddtree.workbook.params.fields import Bootstrap, Text


class SweepParams(NotebookParams):
    """05_sweep: what a sweep of live runs says about temperature and budget. It loads no model."""

    sweep_dir: Text = Field(
        "outputs/sweeps/temperature-budget",
        description="sweep to read (sweep.json, cells), relative to the project root",
    )
    topk_cap: Annotated[int, Field(ge=0, le=1024, description="only runs of this top-k cap; 0 is every one")] = 0
    draft_temperature: Annotated[
        Annotated[float, Field(gt=0, le=10)] | Literal["match", "all"],
        Field(description='only runs of this draft temperature, a number or "match"; "all" is every one'),
    ] = "all"
    bootstrap: Bootstrap = 2000
    out_dir: Text = Field("outputs/sweep", description="folder of the results, relative to the project root")
