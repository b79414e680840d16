"""Check the server arguments, the target, the drafter and the requests that DDTREE can serve exactly.

Each check says in a sentence what was found and what would be right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Requirement:
    """The values of one server argument that the plugin is tested with, and a hint for any other."""

    argument: str
    accepts: Callable[[Any], bool]
    hint: str


def is_one(value: Any) -> bool:
    return value in (1, None)


def is_falsy(value: Any) -> bool:
    return not value


def is_none(value: Any) -> bool:
    return value is None


REQUIREMENTS = (
    Requirement("device", lambda value: str(value).startswith("cuda"), "the kernels run on CUDA"),
    Requirement("tp_size", is_one, "tensor parallelism is not tested; serve with --tp 1"),
    Requirement("pp_size", is_one, "serve with --pp-size 1"),
    Requirement("dp_size", is_one, "start one server for each GPU instead"),
    Requirement("ep_size", is_one, "serve with --ep-size 1"),
    Requirement("page_size", is_one, "KV rows are moved one by one; serve with --page-size 1"),
    Requirement("enable_dp_attention", is_falsy, "leave it out"),
    Requirement("enable_lora", is_falsy, "the drafter predicts the base model only; leave it out"),
    Requirement("enable_mixed_chunk", is_falsy, "leave it out"),
    Requirement(
        "enable_deterministic_inference", is_falsy, "its attention reads the mask over the prefix too; leave it out"
    ),
    Requirement("enable_two_batch_overlap", is_falsy, "leave it out"),
    Requirement("enable_pdmux", is_falsy, "leave it out"),
    Requirement("enable_hierarchical_cache", is_falsy, "leave it out"),
    Requirement("enable_memory_saver", is_falsy, "leave it out"),
    Requirement("disaggregation_mode", lambda value: value in (None, "null"), "serve prefill and decode together"),
    Requirement(
        "kv_cache_dtype", lambda value: value in ("auto", "bfloat16", "bf16"), "serve with --kv-cache-dtype auto"
    ),
    Requirement("speculative_adaptive", is_falsy, "leave it out"),
    Requirement("speculative_draft_window_size", is_none, "leave it out"),
    Requirement("speculative_eagle_topk", is_one, "set DDTREE_TOPK_CAP instead"),
    Requirement("speculative_num_steps", is_one, "a block is drafted in one pass; leave it out"),
    Requirement(
        "speculative_dflash_block_size",
        is_none,
        "the block size is in the drafter's config, the verify width is DDTREE_BUDGET + 1; leave it out",
    ),
    Requirement("speculative_draft_model_path", lambda value: value is not None, "name the drafter's folder"),
)
GRAMMARS = ("json_schema", "regex", "ebnf", "structural_tag")
NO_PENALTY = {"frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0, "min_new_tokens": 0}


def check_arguments(arguments: Any, attention_backends: tuple[str | None, str | None]) -> None:
    """Raises ValueError for the first of `arguments` (SGLang's, resolved) with a value that is not served.

    `attention_backends` are those of prefill and decode.
    """
    for requirement in REQUIREMENTS:
        value = getattr(arguments, requirement.argument)
        if not requirement.accepts(value):
            raise ValueError(f"DDTREE does not serve with {requirement.argument} {value!r}: {requirement.hint}.")
    draft = arguments.speculative_draft_attention_backend
    for role, backend in zip(("prefill", "decode", "draft"), (*attention_backends, draft), strict=True):
        if backend != "triton" and not (role == "draft" and backend is None):
            raise ValueError(
                f"DDTREE does not serve with {role} attention {backend!r}: only triton takes a tree mask in this "
                "release; serve with --attention-backend triton."
            )


def check_model(model: Any) -> None:
    """Raises ValueError for a target (SGLang's ModelConfig) whose state is not one KV row for each token and layer."""
    text = model.hf_text_config
    name = ", ".join(model.hf_config.architectures or ["a model without a named architecture"])
    if model.attention_arch.name != "MHA":
        raise ValueError(f"DDTREE does not serve {name}: its attention is {model.attention_arch.name}, not MHA.")
    sliding = "sliding_attention" in (getattr(text, "layer_types", None) or ()) or (
        getattr(text, "sliding_window", None) is not None and getattr(text, "use_sliding_window", True)
    )
    if sliding:
        raise ValueError(f"DDTREE does not serve {name}: a sliding window counts positions, which siblings share.")
    recurrent = [
        key
        for key in ("linear_num_key_heads", "mamba_d_state", "ssm_cfg", "linear_attn_config")
        if getattr(text, key, None) is not None
    ]
    if recurrent:
        raise ValueError(f"DDTREE does not serve {name}: its recurrent state ({recurrent[0]}) cannot follow a tree.")
    if getattr(model, "is_encoder_decoder", False):
        raise ValueError(f"DDTREE does not serve {name}: it is an encoder-decoder.")


def check_block_size(block_size: int | None, width: int, folder: str) -> int:
    """The drafter's block size. Raises ValueError if its config has none, or if the tree is narrower than a block.

    The drafter writes a whole block behind the prefix, into slots that are reserved for `width` tokens.
    """
    if block_size is None:
        raise ValueError(f"the drafter at {folder} names no block_size in its config; DDTREE needs it.")
    if block_size < 2:
        raise ValueError(f"the drafter at {folder} has block_size {block_size}; it must be 2 or more to draft a token.")
    if width < block_size:
        raise ValueError(
            f"the tree has {width - 1} nodes below its root (DDTREE_BUDGET, or --speculative-num-draft-tokens minus "
            f"1), fewer than the {block_size - 1} drafts of the drafter's block; give at least {block_size - 1}."
        )
    return block_size


def request_problem(request: Any) -> str | None:
    """Why SGLang's `Req` cannot be served, in a sentence, or None.

    min_p, top_p, top_k, sampling_seed and logit_bias are served: a logit bias is the same at every node.
    """
    sampling = request.sampling_params
    if request.return_logprob:
        return (
            "DDTREE does not return logprobs: its rows belong to tree nodes, not to the text. Leave out return_logprob."
        )
    if request.return_hidden_states:
        return "DDTREE does not return hidden states. Leave out return_hidden_states."
    if request.custom_logit_processor is not None:
        return "DDTREE does not run custom_logit_processor: it would have to run at every node of the tree."
    for name in GRAMMARS:
        if getattr(sampling, name) is not None:
            return f"DDTREE does not serve {name}: a grammar's mask differs from node to node. Leave it out."
    for name, neutral in NO_PENALTY.items():
        value = getattr(sampling, name)
        if value != neutral:
            return (
                f"{name} is {value}; DDTREE does not serve it, since the penalty follows each node's own ancestors. "
                f"Set it to {neutral}."
            )
    return None
