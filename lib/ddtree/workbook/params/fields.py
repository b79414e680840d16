"""Kinds of values that several notebooks take: ranges, and descriptions where they are the same everywhere."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field


def each_once(what: str) -> AfterValidator:
    """Refuses a list that holds a value twice; `what` is the name of one."""

    def check(values: list[Any]) -> list[Any]:
        if len(set(values)) != len(values):
            raise ValueError(f"every {what} may stand once only")
        return values

    return AfterValidator(check)


Text = Annotated[str, Field(min_length=1, pattern=r"\S")]
Temperature = Annotated[float, Field(ge=0, le=10)]
Budget = Annotated[int, Field(ge=0, le=1024)]

Prompt = Annotated[Text, Field(description="message that the model answers")]
Temperatures = Annotated[
    list[Temperature],
    Field(min_length=1, description="sampling temperatures measured, all different; 0 is greedy"),
    each_once("temperature"),
]
SkipTokens = Annotated[int, Field(ge=0, le=512, description="tokens generated before the tree that is shown")]
TreeBudget = Annotated[Budget, Field(description="tree nodes beside the root; 0 drafts nothing")]
ChosenBudget = Annotated[
    Budget | Literal["auto"],
    Field(description='tree nodes beside the root; 0 drafts nothing, "auto" chooses round by round'),
]
TopkCap = Annotated[int, Field(ge=1, le=1024, description="children of one node at most")]
TargetTemperature = Annotated[Temperature, Field(description="sampling temperature of the target; 0 is greedy")]
DraftTemperature = Annotated[
    Annotated[float, Field(gt=0, le=10)] | Literal["match"],
    Field(description='temperature of the drafter when the tree is built; "match" is the request\'s own'),
]
TopK = Annotated[int, Field(ge=0, le=1_000_000, description="tokens kept by top-k; 0 is off")]
TopP = Annotated[float, Field(gt=0, le=1, description="probability mass kept by top-p; 1 is off")]
MinP = Annotated[float, Field(ge=0, le=1, description="tokens below this share of the likeliest are dropped; 0 is off")]
Bootstrap = Annotated[int, Field(ge=100, le=100_000, description="resamples for the intervals")]
Backend = Annotated[
    Literal["auto", "fused", "sgl", "reference"],
    Field(description='verify backend; "auto" is the best that proved itself here'),
]
