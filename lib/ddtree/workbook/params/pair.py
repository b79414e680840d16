"""What a notebook takes that loads a target and its drafter."""

from typing import Literal

from pydantic import BaseModel, Field

from ddtree.workbook.params.base import NotebookParams
from ddtree.workbook.params.fields import Text


class PairParams(BaseModel):
    """Which models, and where they run."""

    model: Text = Field("smollm2-135m", description="target: zoo name, hub id or folder")
    drafter: Text = Field("auto", description='drafter: hub id or folder; "auto" is the one paired with model')
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description='number format of the weights; "auto" suits the device'
    )
    device: Literal["cpu", "cuda"] = Field("cpu", description="where the models run")


class ModelParams(NotebookParams, PairParams):
    """What a notebook takes that loads a target and its drafter; the pair comes first in its parameters cell."""
