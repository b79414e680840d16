"""The parameters of 07_speed."""

from typing import Annotated, Literal

from pydantic import Field

from ddtree.workbook.params.base import NotebookParams
from ddtree.workbook.params.fields import Temperature, Text, TopkCap


class SpeedParams(NotebookParams):
    """07_speed: what each stage of a round costs, beside what others use for it."""

    device: Literal["cpu", "cuda"] = Field("cpu", description="where everything is measured")
    logits_dtype: Literal["float32", "bfloat16"] = Field("float32", description="number format of the logits")
    recorded: str = Field(
        "", description="result.json of an earlier measurement to show, relative to the project root; empty measures"
    )
    vocabularies: Annotated[
        list[Annotated[int, Field(ge=2, le=1_000_000)]], Field(min_length=1, description="sizes of the vocabulary")
    ] = [49152]
    batches: Annotated[
        list[Annotated[int, Field(ge=1, le=1024)]], Field(min_length=1, description="requests decoded together")
    ] = [1, 4]
    budgets: Annotated[
        list[Annotated[int, Field(ge=1, le=1024)]], Field(min_length=1, description="tree nodes beside the root")
    ] = [16, 64]
    depth: Annotated[int, Field(ge=1, le=64, description="positions drafted in one pass")] = 7
    topk_cap: TopkCap = 16
    temperature: Annotated[float, Field(gt=0, le=10, description="sampling temperature of the stages and rounds")] = 0.6
    top_k: Annotated[int, Field(ge=1, le=1_000_000, description="tokens kept by top-k where filters are on")] = 40
    top_p: Annotated[float, Field(gt=0, lt=1, description="probability mass kept by top-p where filters are on")] = 0.95
    repeats: Annotated[int, Field(ge=2, le=1000, description="turns in which every stage is timed once")] = 9
    live_models: Annotated[
        list[Text],
        Field(description="pairs to measure rounds on: zoo names or random-weight shapes"),
    ] = ["smollm2-135m"]
    live_batches: Annotated[
        list[Annotated[int, Field(ge=1, le=256)]], Field(min_length=1, description="requests decoded together there")
    ] = [1, 4]
    live_budgets: Annotated[
        list[Annotated[int, Field(ge=1, le=1024)]], Field(min_length=1, description="tree nodes beside the root there")
    ] = [16]
    live_tokens: Annotated[int, Field(ge=4, le=4096, description="tokens of each request of a measured batch")] = 48
    prompts: Annotated[list[Text], Field(min_length=1, description="messages that the models answer")] = [
        "Explain in three sentences why the sky is blue.",
        "Write a Python function that checks whether a number is prime.",
        "Give me five tips for a job interview.",
        "How do I cook rice properly?",
    ]
    temperatures: Annotated[
        list[Temperature], Field(min_length=1, description="of the comparison with dflash_generate; 0 is greedy")
    ] = [0.0, 1.0]
    max_new_tokens: Annotated[int, Field(ge=1, le=4096, description="tokens of each answer of that comparison")] = 48
    bootstrap: Annotated[int, Field(ge=100, le=100_000, description="resamples of prompts for its intervals")] = 2000
    out_dir: Text = Field("outputs/speed", description="folder of the results, relative to the project root")
