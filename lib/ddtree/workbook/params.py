"""Define the parameters of each notebook: names, types, ranges, units and defaults, equal in model and notebook.

All problems are reported at once, a sentence for each."""

from collections.abc import Sequence
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


def _each_once(values: list[Any]) -> list[Any]:
    if len(set(values)) != len(values):
        raise ValueError("every entry may occur only once")
    return values


Text = Annotated[str, Field(min_length=1, pattern=r"\S")]
Temperature = Annotated[float, Field(ge=0, le=10)]
PositiveTemperature = Annotated[float, Field(gt=0, le=10)]
Budget = Annotated[int, Field(ge=0, le=1024)]
Count = Annotated[int, Field(ge=1, le=1024)]
EachOnce = AfterValidator(_each_once)

OutDir = Annotated[Text, Field(description="results folder, relative to the project root")]
Prompts = Annotated[list[Text], Field(min_length=1, description="messages that the model answers")]
Temperatures = Annotated[
    list[Temperature],
    Field(min_length=1, description="sampling temperatures measured, all different; 0 is greedy"),
    EachOnce,
]
TopkCap = Annotated[Count, Field(description="largest number of children of one node")]
DraftTemperature = Annotated[
    PositiveTemperature | Literal["match"],
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

    def __init__(self, notebook: str, problems: Sequence[str]) -> None:
        self.problems = list(problems)
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
        known = set(cls.model_fields)
        values = candidates(namespace, known=known)
        missing = [missing_problem(name, cls.schema_of(name)) for name in cls.model_fields if name not in values]
        lost = overwritten(namespace, known=known)
        return cls.from_mapping(values, [*missing, *([overwritten_problem(lost)] if lost else [])])

    @classmethod
    def from_mapping(cls, values: dict[str, Any], problems: Sequence[str] = ()) -> Self:
        """Defaults overridden by `values`. Raises ParameterError with every problem at once, `problems` first."""
        try:
            model = cls.model_validate(values)
        except ValidationError as error:
            problems = [*problems, *problems_of(error, cls.model_json_schema()["properties"])]
        if problems:
            raise ParameterError(cls.__name__, problems)
        return model

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

    prompt: Text = Field(
        "Explain in three sentences why the sky is blue.", description="message that the model answers"
    )
    skip_tokens: int = Field(8, ge=0, le=512, description="tokens generated before the tree that is shown")
    budget: Budget = Field(16, description="tree nodes, root excluded; 0 drafts nothing")
    topk_cap: TopkCap = 4
    temperature: Temperature = Field(0.6, description="sampling temperature of the target; 0 is greedy")


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
    law_draws: int = Field(
        20000, ge=0, le=1_000_000, description="verify calls of each exactness test; 0 skips the tests"
    )
    out_dir: OutDir = "outputs/kernel"


class LiveParams(ModelParams):
    """03_live: speed, equality with one-by-one decoding, and diversity on real prompts."""

    prompts: Prompts = [
        "Explain in three sentences why the sky is blue.",
        "Write a Python function that checks whether a number is prime.",
        "Give me five tips for a job interview.",
    ]
    temperatures: Temperatures = [0.0, 0.6, 1.0]
    top_k: TopK = 0
    top_p: TopP = 1.0
    min_p: MinP = 0.0
    budget: Budget | Literal["auto"] = Field(
        16, description='tree nodes, root excluded; 0 drafts nothing, "auto" chooses in each round'
    )
    topk_cap: TopkCap = 4
    draft_temperature: DraftTemperature = 1.0
    extra_budgets: list[Budget | Literal["auto"]] = Field(
        [4, 8], description="further budgets measured at the highest temperature; may be empty"
    )
    max_new_tokens: int = Field(64, ge=1, le=4096, description="tokens generated for each prompt")
    repeats: int = Field(1, ge=1, le=100, description="measurements of each setting")
    minutes: float = Field(
        0.0,
        ge=0,
        le=1440,
        description="time for the measurement, which takes the prompts that fit; 0 is no limit",
    )
    regression_prompts: int = Field(
        3, ge=0, le=1000, description="prompts whose greedy text must equal autoregressive decoding"
    )
    regression_tokens: int = Field(32, ge=1, le=4096, description="tokens compared for each of them")
    diversity_samples: int = Field(4, ge=0, le=64, description="continuations of one prompt compared; 0 compares none")
    diversity_tokens: int = Field(32, ge=1, le=4096, description="tokens of each continuation")
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
    urls: dict[ServerName, Url] = Field(
        {}, description='servers that run already, by name ("plain", "dflash", "ddtree-16"); empty starts them'
    )
    extra_layers: Annotated[list[Annotated[int, Field(ge=0, le=4096)]], EachOnce] = Field(
        [0],
        min_length=1,
        description="identity layers added to the target, all different, servers for each; above 0 a step costs "
        "what a deeper model's would: an emulated cost",
    )
    budgets: Annotated[list[Count], EachOnce] = Field(
        [16], min_length=1, description="tree nodes excluding the root, all different, one DDTREE server for each"
    )
    topk_cap: TopkCap = 4
    draft_temperature: float = Field(1.0, gt=0, le=10, description="temperature of the drafter when the tree is built")
    temperatures: Temperatures = [0.0, 0.6, 1.0]
    batches: Annotated[list[Count], EachOnce] = Field(
        [1, 8], min_length=1, description="requests asked at once, all different"
    )
    prompts: Prompts = [
        "Explain in three sentences why the sky is blue.",
        "Write a short story about a robot who learns to paint.",
        "How do I cook rice properly?",
        "What is the difference between a list and a tuple in Python?",
        "Give me five tips for a job interview.",
        "Summarise the causes of the First World War.",
        "Write a Python function that checks whether a number is prime.",
        "Write a polite email that asks for a day off.",
    ]
    max_new_tokens: int = Field(128, ge=2, le=4096, description="tokens of each answer")
    repeats: int = Field(3, ge=1, le=100, description="measurements of each batch above 1")
    samples: int = Field(32, ge=0, le=10_000, description="answers to one prompt in the diversity check; 0 asks none")
    tp: int = Field(1, ge=1, le=64, description="GPUs of one server")
    server_arguments: dict[ArgumentName, str | bool | int | float] = Field(
        {}, description="more arguments of every server, by long name with underscores (mem_fraction_static)"
    )
    start_timeout_s: int = Field(600, ge=1, le=86_400, description="seconds until a server must be ready")
    bootstrap: Bootstrap = 2000
    out_dir: OutDir = "outputs/serving"


class SweepParams(NotebookParams):
    """05_sweep: what a sweep of live runs says about temperature and budget. It loads no model."""

    sweep_dir: Text = Field(
        "outputs/sweeps/temperature-budget",
        description="sweep to read (sweep.json, cells), relative to the project root",
    )
    topk_cap: int = Field(0, ge=0, le=1024, description="only runs of this top-k cap; 0 is every one")
    draft_temperature: PositiveTemperature | Literal["match", "all"] = Field(
        "all", description='only runs of this draft temperature, a number or "match"; "all" is every one'
    )
    bootstrap: Bootstrap = 2000
    out_dir: OutDir = "outputs/sweep"


class SpeedParams(NotebookParams):
    """07_speed: what each stage of a round costs, next to what others use for it."""

    device: Literal["cpu", "cuda"] = Field("cpu", description="where everything is measured")
    logits_dtype: Literal["float32", "bfloat16"] = Field("float32", description="number format of the logits")
    recorded: str = Field(
        "", description="result.json of an earlier measurement to show, relative to the project root; empty measures"
    )
    vocabularies: list[Annotated[int, Field(ge=2, le=1_000_000)]] = Field(
        [49152], min_length=1, description="sizes of the vocabulary"
    )
    batches: list[Count] = Field([1, 4], min_length=1, description="requests decoded together")
    budgets: list[Count] = Field([16, 64], min_length=1, description="tree nodes excluding the root")
    depth: int = Field(7, ge=1, le=64, description="positions drafted in one pass")
    topk_cap: TopkCap = 16
    temperature: float = Field(0.6, gt=0, le=10, description="sampling temperature of the stages and rounds")
    top_k: int = Field(40, ge=1, le=1_000_000, description="tokens kept by top-k where filters are on")
    top_p: float = Field(0.95, gt=0, lt=1, description="probability mass kept by top-p where filters are on")
    repeats: int = Field(9, ge=2, le=1000, description="turns in which every stage is timed once")
    live_models: list[Text] = Field(
        ["smollm2-135m"], description="pairs to measure rounds on: zoo names or random-weight shapes"
    )
    live_batches: list[Annotated[int, Field(ge=1, le=256)]] = Field(
        [1, 4], min_length=1, description="requests decoded together there"
    )
    live_budgets: list[Count] = Field([16], min_length=1, description="tree nodes excluding the root there")
    live_tokens: int = Field(48, ge=4, le=4096, description="tokens of each request of a measured batch")
    prompts: Annotated[Prompts, Field(description="messages that the models answer")] = [
        "Explain in three sentences why the sky is blue.",
        "Write a Python function that checks whether a number is prime.",
        "Give me five tips for a job interview.",
        "How do I cook rice properly?",
    ]
    temperatures: list[Temperature] = Field(
        [0.0, 1.0], min_length=1, description="of the comparison with dflash_generate; 0 is greedy"
    )
    max_new_tokens: int = Field(48, ge=1, le=4096, description="tokens of each answer of that comparison")
    bootstrap: int = Field(2000, ge=100, le=100_000, description="resamples of prompts for its intervals")
    out_dir: OutDir = "outputs/speed"


PARAMS: dict[str, type[NotebookParams]] = {
    "01_tree": TreeParams,
    "02_kernel": KernelParams,
    "03_live": LiveParams,
    "04_serving": ServingParams,
    "05_sweep": SweepParams,
    "07_speed": SpeedParams,
}
