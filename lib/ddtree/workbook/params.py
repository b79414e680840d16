"""Define the parameters of each notebook: names, types, ranges, units and defaults, equal in model and notebook.

All problems are reported at once, a sentence for each."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ddtree.backends import BackendName
from ddtree.workbook.params_validation import (
    YamlError,
    candidates,
    load_mapping,
    missing_problem,
    overwritten,
    overwritten_problem,
    problems_of,
)


def each_once(what: str) -> AfterValidator:
    """A validator that refuses a list with repeated values; `what` names one value."""

    def check(values: list[Any]) -> list[Any]:
        if len(set(values)) != len(values):
            raise ValueError(f"every {what} may occur only once")
        return values

    return AfterValidator(check)


Text = Annotated[str, Field(min_length=1, pattern=r"\S")]
Temperature = Annotated[float, Field(ge=0, le=10)]
Budget = Annotated[int, Field(ge=0, le=1024)]
Count = Annotated[int, Field(ge=1, le=1024)]
OutDir = Annotated[Text, Field(description="results folder, relative to the project root")]

Prompt = Annotated[Text, Field(description="message that the model answers")]
Temperatures = Annotated[
    list[Temperature],
    Field(min_length=1, description="sampling temperatures measured, all different; 0 is greedy"),
    each_once("temperature"),
]
SkipTokens = Annotated[int, Field(ge=0, le=512, description="tokens generated before the tree that is shown")]
TreeBudget = Annotated[Budget, Field(description="tree nodes, root excluded; 0 drafts nothing")]
ChosenBudget = Annotated[
    Budget | Literal["auto"],
    Field(description='tree nodes, root excluded; 0 drafts nothing, "auto" chooses in each round'),
]
TopkCap = Annotated[Count, Field(description="largest number of children of one node")]
TargetTemperature = Annotated[Temperature, Field(description="sampling temperature of the target; 0 is greedy")]
DraftTemperature = Annotated[
    Annotated[float, Field(gt=0, le=10)] | Literal["match"],
    Field(description='temperature of the drafter when the tree is built; "match" is the request\'s own'),
]
TopK = Annotated[int, Field(ge=0, le=1_000_000, description="tokens kept by top-k; 0 is off")]
TopP = Annotated[float, Field(gt=0, le=1, description="probability mass kept by top-p; 1 is off")]
MinP = Annotated[float, Field(ge=0, le=1, description="tokens below this share of the likeliest are dropped; 0 is off")]
Bootstrap = Annotated[int, Field(ge=100, le=100_000, description="bootstrap resamples for the intervals")]
Backend = Annotated[
    Literal["auto", BackendName],
    Field(description='verify backend; "auto" is the best that passes its self-test here'),
]


class ParameterError(ValueError):
    """One or more parameters are wrong; the message has one sentence for each problem."""

    def __init__(self, notebook: str, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join([f"{notebook}: {len(problems)} wrong parameter(s).", *problems]))


class NotebookParams(BaseModel):
    """Parameters of every notebook. Frozen and strict: true is not 1, 16.0 is not 16, NaN is not a number."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    threads: int = Field(0, ge=0, le=256, description="CPU threads; 0 is all physical cores")
    seed: int = Field(0, ge=0, le=2**63 - 1, description="seed of every random draw in the notebook")
    out_dir: OutDir = "outputs/run"

    @classmethod
    def check(cls, namespace: dict[str, Any]) -> Self:
        """The validated parameters of a notebook, from its `globals()`.

        A name that a parameters cell set and that is not a parameter is an error, as is a missing parameter, or one
        whose injected value the cell of defaults has overwritten.
        Raises ParameterError with every problem at once.
        """
        values = candidates(namespace, known=set(cls.model_fields))
        missing = [missing_problem(name, cls.schema_of(name)) for name in cls.model_fields if name not in values]
        lost = overwritten(namespace, known=set(cls.model_fields))
        return cls._validated(values, [*missing, *([overwritten_problem(lost)] if lost else [])])

    @classmethod
    def from_mapping(cls, values: dict[str, Any]) -> Self:
        """Defaults overridden by `values`. Raises ParameterError with every problem at once."""
        return cls._validated(values, [])

    @classmethod
    def from_yaml(cls, path: str | Path) -> Self:
        """Defaults overridden by the YAML file `path`. Raises ParameterError, also for a file without values."""
        try:
            return cls.from_mapping(load_mapping(path))
        except YamlError as error:
            raise ParameterError(cls.__name__, [str(error)]) from error

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Name to default value, as plain Python values, in the order of the notebook's parameters cell."""
        return cls.model_validate({}).to_plain()

    @classmethod
    def schema_of(cls, name: str) -> dict[str, Any]:
        """The JSON schema of one parameter: type, range and description."""
        schema: dict[str, Any] = cls.model_json_schema()["properties"][name]
        return schema

    def to_plain(self) -> dict[str, Any]:
        """Only str, int, float, list and dict: papermill turns numpy scalars and tuples into text."""
        return self.model_dump(mode="json")

    @classmethod
    def _validated(cls, values: dict[str, Any], problems: list[str]) -> Self:
        model = None
        try:
            model = cls.model_validate(values)
        except ValidationError as error:
            problems = problems + problems_of(error, cls.model_json_schema()["properties"])
        if model is None or problems:
            raise ParameterError(cls.__name__, problems)
        return model


class PairParams(BaseModel):
    """Which models, and where they run."""

    model: Text = Field("smollm2-135m", description="target: zoo name, hub id or folder")
    drafter: Text = Field("auto", description='drafter: hub id or folder; "auto" is the one paired with model')
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description='number format of the weights; "auto" suits the device'
    )
    device: Literal["cpu", "cuda"] = Field("cpu", description="where the models run")


class ModelParams(NotebookParams, PairParams):
    """Parameters of a notebook that loads a target and its drafter; the pair comes first in its parameters cell."""


class OneTreeParams(ModelParams):
    """Which tree: the prompt, how far it is decoded first, and how the tree is built."""

    prompt: Prompt = "Explain in three sentences why the sky is blue."
    skip_tokens: SkipTokens = 8
    budget: TreeBudget = 16
    topk_cap: TopkCap = 4
    temperature: TargetTemperature = 0.6


class TreeParams(OneTreeParams):
    """01_tree: one draft tree, looked at closely."""

    draft_temperature: DraftTemperature = 1.0
    out_dir: OutDir = "outputs/tree"


class KernelParams(OneTreeParams):
    """02_kernel: the sampling verify, step by step and against its own distribution."""

    top_k: TopK = 0
    top_p: TopP = 1.0
    min_p: MinP = 0.0
    draft_temperature: DraftTemperature = 1.0
    backend: Backend = "auto"
    law_draws: Annotated[
        int, Field(ge=0, le=1_000_000, description="verify calls of each exactness test; 0 skips the tests")
    ] = 20000
    out_dir: OutDir = "outputs/kernel"


class LiveParams(ModelParams):
    """03_live: speed, equality with one-by-one decoding, and diversity on real prompts."""

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
        int, Field(ge=0, le=1000, description="prompts whose greedy text must equal autoregressive decoding")
    ] = 3
    regression_tokens: Annotated[int, Field(ge=1, le=4096, description="tokens compared for each of them")] = 32
    diversity_samples: Annotated[
        int, Field(ge=0, le=64, description="continuations of one prompt compared; 0 compares none")
    ] = 4
    diversity_tokens: Annotated[int, Field(ge=1, le=4096, description="tokens of each continuation")] = 32
    bootstrap: Bootstrap = 2000
    backend: Backend = "auto"
    out_dir: OutDir = "outputs/live"


ServerName = Annotated[str, Field(pattern=r"^(plain|dflash|ddtree-[1-9][0-9]*)$")]
ArgumentName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
Url = Annotated[str, Field(pattern=r"^https?://\S+$", examples=["http://127.0.0.1:30000"])]


class ServingParams(NotebookParams):
    """04_serving: SGLang's plain engine, its DFLASH and the DDTREE plugin on the same requests."""

    recorded: str = Field(
        "",
        description="result.json of an earlier run to show, relative to the project root; empty starts or attaches to "
        "servers, and shows docs/h200/serving.json where there is neither a GPU nor a URL",
    )
    target: Text = Field("smollm2-135m", description="model that is served: zoo name or folder")
    drafter: Text = Field("smollm2-135m", description="its drafter: zoo name or folder")
    urls: Annotated[
        dict[ServerName, Url],
        Field(description='servers that run already, by name ("plain", "dflash", "ddtree-16"); empty starts them'),
    ] = {}
    extra_layers: Annotated[
        list[Annotated[int, Field(ge=0, le=4096)]],
        Field(
            min_length=1,
            description="identity layers added to the target, all different, servers for each; above 0 a step costs "
            "what a deeper model's would: an emulated cost",
        ),
        each_once("entry"),
    ] = [0]
    budgets: Annotated[
        list[Count],
        Field(min_length=1, description="tree nodes excluding the root, all different, one DDTREE server for each"),
        each_once("entry"),
    ] = [16]
    topk_cap: TopkCap = 4
    draft_temperature: Annotated[
        float, Field(gt=0, le=10, description="temperature of the drafter when the tree is built")
    ] = 1.0
    temperatures: Temperatures = [0.0, 0.6, 1.0]
    batches: Annotated[
        list[Count], Field(min_length=1, description="requests asked at once, all different"), each_once("entry")
    ] = [1, 8]
    prompts: Annotated[list[Text], Field(min_length=1, description="messages that the model answers")] = [
        "Explain in three sentences why the sky is blue.",
        "Write a short story about a robot who learns to paint.",
        "How do I cook rice properly?",
        "What is the difference between a list and a tuple in Python?",
        "Give me five tips for a job interview.",
        "Summarise the causes of the First World War.",
        "Write a Python function that checks whether a number is prime.",
        "Write a polite email that asks for a day off.",
    ]
    max_new_tokens: Annotated[int, Field(ge=2, le=4096, description="tokens of each answer")] = 128
    repeats: Annotated[int, Field(ge=1, le=100, description="measurements of each batch above 1")] = 3
    samples: Annotated[
        int, Field(ge=0, le=10_000, description="answers to one prompt in the diversity check; 0 asks none")
    ] = 32
    tp: Annotated[int, Field(ge=1, le=64, description="GPUs of one server")] = 1
    server_arguments: Annotated[
        dict[ArgumentName, str | bool | int | float],
        Field(description="more arguments of every server, by long name with underscores (mem_fraction_static)"),
    ] = {}
    start_timeout_s: Annotated[int, Field(ge=1, le=86_400, description="seconds until a server must be ready")] = 600
    bootstrap: Bootstrap = 2000
    out_dir: OutDir = "outputs/serving"


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
    out_dir: OutDir = "outputs/sweep"


class SpeedParams(NotebookParams):
    """07_speed: what each stage of a round costs, next to what others use for it."""

    device: Literal["cpu", "cuda"] = Field("cpu", description="where everything is measured")
    logits_dtype: Literal["float32", "bfloat16"] = Field("float32", description="number format of the logits")
    recorded: str = Field(
        "", description="result.json of an earlier measurement to show, relative to the project root; empty measures"
    )
    vocabularies: Annotated[
        list[Annotated[int, Field(ge=2, le=1_000_000)]], Field(min_length=1, description="sizes of the vocabulary")
    ] = [49152]
    batches: Annotated[list[Count], Field(min_length=1, description="requests decoded together")] = [1, 4]
    budgets: Annotated[list[Count], Field(min_length=1, description="tree nodes excluding the root")] = [16, 64]
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
        list[Count],
        Field(min_length=1, description="tree nodes excluding the root there"),
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
    out_dir: OutDir = "outputs/speed"


PARAMS: dict[str, type[NotebookParams]] = {
    "01_tree": TreeParams,
    "02_kernel": KernelParams,
    "03_live": LiveParams,
    "04_serving": ServingParams,
    "05_sweep": SweepParams,
    "07_speed": SpeedParams,
}
