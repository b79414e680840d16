"""The profiles of 04_serving: what is made for a machine fits it, and what was never run says so and why."""

from types import SimpleNamespace

import pytest
from ddtree.serving.validation import REQUIREMENTS, check_arguments, check_model
from ddtree.workbook.params import ServingParams
from ddtree.workbook.paths import project_root
from wording import names

FOLDER = project_root() / "params" / "serving"
KIMI = FOLDER / "kimi-k2.6-tp8.yaml"


def test_h200_holds_the_model_as_it_is_and_emulated_costs_under_one_servers_limits() -> None:
    params = ServingParams.from_yaml(FOLDER / "h200.yaml")
    assert params.tp == 1
    assert params.extra_layers[0] == 0
    assert len(params.extra_layers) > 1
    limits = params.server_arguments
    assert limits["attention_backend"] == "triton"
    assert limits["page_size"] == 1
    assert limits["max_running_requests"] >= max(params.batches)
    assert limits["max_total_tokens"] >= max(params.batches) * limits["context_length"]


def test_kimi_is_valid_and_says_that_it_was_never_run() -> None:
    params = ServingParams.from_yaml(KIMI)
    assert params.tp == 8
    assert params.extra_layers == [0], "its cost is its own"
    comment = " ".join(line.removeprefix("# ") for line in KIMI.read_text().splitlines() if line.startswith("#"))
    for words in ("8 GPUs", "never run", "refuses it before a model loads", "tensor parallelism", "MLA"):
        assert words in comment


def test_the_plugin_refuses_kimi_for_the_reasons_that_its_profile_names() -> None:
    tp = next(requirement for requirement in REQUIREMENTS if requirement.argument == "tp_size")
    assert not tp.accepts(ServingParams.from_yaml(KIMI).tp)
    before = [requirement.argument for requirement in REQUIREMENTS[: REQUIREMENTS.index(tp)]]
    with pytest.raises(ValueError, match=names("tp_size 8")):
        check_arguments(SimpleNamespace(tp_size=8, **dict.fromkeys(before, "cuda")), ("triton", "triton"))
    config = SimpleNamespace(architectures=["KimiK25ForConditionalGeneration"])
    mla = SimpleNamespace(
        attention_arch=SimpleNamespace(name="MLA"), hf_config=config, hf_text_config=SimpleNamespace()
    )
    with pytest.raises(ValueError, match=names("MLA")):
        check_model(mla)
