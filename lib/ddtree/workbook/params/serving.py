"""The parameters of 04_serving."""

from typing import Annotated

from pydantic import Field

from ddtree.workbook.params.base import NotebookParams
from ddtree.workbook.params.fields import Bootstrap, Temperatures, Text, TopkCap, each_once

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
        list[Annotated[int, Field(ge=1, le=1024)]],
        Field(min_length=1, description="tree nodes beside the root, all different, one DDTREE server for each"),
        each_once("entry"),
    ] = [16]
    topk_cap: TopkCap = 4
    draft_temperature: Annotated[
        float, Field(gt=0, le=10, description="temperature of the drafter when the tree is built")
    ] = 1.0
    temperatures: Temperatures = [0.0, 0.6, 1.0]
    batches: Annotated[
        list[Annotated[int, Field(ge=1, le=1024)]],
        Field(min_length=1, description="requests asked at once, all different"),
        each_once("entry"),
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
    out_dir: Text = Field("outputs/serving", description="folder of the results, relative to the project root")
