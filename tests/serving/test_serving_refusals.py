"""What a server refuses before it loads a model, and what it refuses of a request: each in a sentence with a remedy."""

from types import SimpleNamespace
from typing import Any

import pytest
from ddtree.serving.validation import check_arguments, check_block_size, check_model, request_problem
from wording import names, tells

SERVED: dict[str, Any] = {
    "device": "cuda", "tp_size": 1, "pp_size": 1, "dp_size": 1, "ep_size": 1, "page_size": 1,
    "enable_dp_attention": False, "enable_lora": None, "enable_mixed_chunk": False,
    "enable_deterministic_inference": False, "enable_two_batch_overlap": False, "enable_pdmux": False,
    "enable_hierarchical_cache": False, "enable_memory_saver": False, "disaggregation_mode": "null",
    "kv_cache_dtype": "auto", "speculative_adaptive": False, "speculative_draft_window_size": None,
    "speculative_eagle_topk": None, "speculative_num_steps": None, "speculative_dflash_block_size": None,
    "speculative_draft_model_path": "drafter", "speculative_draft_attention_backend": None,
}  # fmt: skip
TRITON = ("triton", "triton")


def arguments(**changed: Any) -> Any:
    return SimpleNamespace(**SERVED | changed)


def test_the_served_arguments_pass() -> None:
    check_arguments(arguments(), TRITON)
    check_arguments(arguments(page_size=None, speculative_draft_attention_backend="triton"), TRITON)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("device", "cpu"), ("tp_size", 2), ("pp_size", 2), ("dp_size", 4), ("ep_size", 2), ("page_size", 16),
        ("enable_dp_attention", True), ("enable_lora", True), ("enable_mixed_chunk", True),
        ("enable_deterministic_inference", True), ("enable_two_batch_overlap", True), ("enable_pdmux", True),
        ("enable_hierarchical_cache", True), ("enable_memory_saver", True), ("disaggregation_mode", "prefill"),
        ("kv_cache_dtype", "fp8_e4m3"), ("speculative_adaptive", True), ("speculative_draft_window_size", 512),
        ("speculative_eagle_topk", 4), ("speculative_num_steps", 3), ("speculative_dflash_block_size", 8),
        ("speculative_draft_model_path", None),
    ],
)  # fmt: skip
def test_one_argument_out_of_what_is_served_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=names(f"{name} {value!r}")):
        check_arguments(arguments(**{name: value}), TRITON)


def test_attention_without_a_tree_mask_is_refused() -> None:
    with pytest.raises(ValueError, match=names("prefill fa3 --attention-backend triton")):
        check_arguments(arguments(), ("fa3", "triton"))
    with pytest.raises(ValueError, match=names("decode flashinfer")):
        check_arguments(arguments(), ("triton", "flashinfer"))
    with pytest.raises(ValueError, match=names("draft fa3")):
        check_arguments(arguments(speculative_draft_attention_backend="fa3"), TRITON)


def model(attention: str = "MHA", encoder_decoder: bool = False, **text: Any) -> Any:
    return SimpleNamespace(
        hf_text_config=SimpleNamespace(**text), hf_config=SimpleNamespace(architectures=["ToyForCausalLM"]),
        attention_arch=SimpleNamespace(name=attention), is_encoder_decoder=encoder_decoder,
    )  # fmt: skip


def test_a_full_attention_model_passes() -> None:
    check_model(model(sliding_window=None))
    check_model(model(sliding_window=4096, use_sliding_window=False, layer_types=["full_attention"]))


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        (model("MLA"), "MLA"),
        (model(sliding_window=4096), "sliding window"),
        (model(layer_types=["full_attention", "sliding_attention"]), "sliding window"),
        (model(linear_num_key_heads=16), "recurrent state"),
        (model(encoder_decoder=True), "encoder-decoder"),
    ],
)
def test_a_model_whose_cache_is_not_rows_of_tokens_is_refused(refused: Any, told: str) -> None:
    with pytest.raises(ValueError, match=f"ToyForCausalLM.*{told}"):
        check_model(refused)


def test_the_tree_is_at_least_as_wide_as_the_block() -> None:
    assert check_block_size(8, 8, "folder") == 8
    with pytest.raises(ValueError, match=names("6 7")):
        check_block_size(8, 7, "folder")
    with pytest.raises(ValueError, match=names("block_size")):
        check_block_size(None, 17, "folder")
    with pytest.raises(ValueError, match=names("block_size 1")):
        check_block_size(1, 17, "folder")


def request(sampling: dict[str, Any] | None = None, **changed: Any) -> Any:
    plain = {
        "json_schema": None, "regex": None, "ebnf": None, "structural_tag": None, "frequency_penalty": 0.0,
        "presence_penalty": 0.0, "repetition_penalty": 1.0, "min_new_tokens": 0, "min_p": 0.1, "logit_bias": {"3": 1.0},
        "sampling_seed": 7,
    }  # fmt: skip
    fields = {"return_logprob": False, "return_hidden_states": False, "custom_logit_processor": None}
    return SimpleNamespace(sampling_params=SimpleNamespace(**plain | (sampling or {})), **fields | changed)


def test_min_p_seed_and_bias_are_served() -> None:
    assert request_problem(request()) is None


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        (request(return_logprob=True), "logprobs"),
        (request(return_hidden_states=True), "return_hidden_states"),
        (request(custom_logit_processor="x"), "custom_logit_processor"),
        (request({"json_schema": "{}"}), "json_schema"),
        (request({"regex": "a+"}), "regex"),
        (request({"ebnf": "root"}), "ebnf"),
        (request({"structural_tag": "t"}), "structural_tag"),
        (request({"frequency_penalty": 0.5}), "frequency_penalty 0.5"),
        (request({"presence_penalty": -1.0}), "presence_penalty -1.0"),
        (request({"repetition_penalty": 1.1}), "repetition_penalty 1.1"),
        (request({"min_new_tokens": 4}), "min_new_tokens 4"),
    ],
)
def test_what_would_differ_from_node_to_node_is_refused(refused: Any, told: str) -> None:
    assert tells(request_problem(refused), told)
