"""The parameters of 03_live."""

from typing import Annotated, Literal

from pydantic import Field

from ddtree.workbook.params.fields import (
    Backend,
    Bootstrap,
    Budget,
    ChosenBudget,
    DraftTemperature,
    MinP,
    Temperatures,
    Text,
    TopK,
    TopkCap,
    TopP,
)
from ddtree.workbook.params.pair import ModelParams


class LiveParams(ModelParams):
    """03_live: speed, sameness and diversity on real prompts."""

    prompts: Annotated[list[Text], Field(min_length=1, description="messages that the model answers")] = [
        "Explain in three sentences why the sky is blue.",
        "Write a Python function that checks whether a number is prime.",
        "Give me five tips for a job interview.",
    ]
    temperatures: Temperatures = [0.0, 0.6, 1.0]
    top_k: TopK = 0
    top_p: TopP = 1.0
    min_p: MinP = 0.0
    budget: ChosenBudget = 16
    topk_cap: TopkCap = 4
    draft_temperature: DraftTemperature = 1.0
    extra_budgets: Annotated[
        list[Budget | Literal["auto"]],
        Field(description="further budgets measured at the highest temperature; may be empty"),
    ] = [4, 8]
    max_new_tokens: Annotated[int, Field(ge=1, le=4096, description="tokens generated for each prompt")] = 64
    repeats: Annotated[int, Field(ge=1, le=100, description="measurements of each setting")] = 1
    regression_prompts: Annotated[
        int, Field(ge=0, le=1000, description="prompts whose greedy text must equal one-by-one decoding")
    ] = 3
    regression_tokens: Annotated[int, Field(ge=1, le=4096, description="tokens compared for each of them")] = 32
    diversity_samples: Annotated[
        int, Field(ge=0, le=64, description="continuations of one prompt compared; 0 compares none")
    ] = 4
    diversity_tokens: Annotated[int, Field(ge=1, le=4096, description="tokens of each continuation")] = 32
    bootstrap: Bootstrap = 2000
    backend: Backend = "auto"
    out_dir: Text = Field("outputs/live", description="folder of the results, relative to the project root")
