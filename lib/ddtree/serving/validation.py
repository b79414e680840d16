"""Refuse server arguments and requests that DDTREE cannot serve exactly, each with what would be right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Need:
    """One argument's value under which the plugin was proved."""

    argument: str
    right: Callable[[Any], bool]
    remedy: str


def one(value: Any) -> bool:
    return value in (1, None)


def off(value: Any) -> bool:
    return not value


NEEDS = (
    Need("device", lambda value: str(value).startswith("cuda"), "the kernels run on CUDA"),
    Need("tp_size", one, "tensor parallelism is not proved; serve with --tp 1"),
    Need("pp_size", one, "serve with --pp-size 1"),
    Need("dp_size", one, "start one server for each GPU instead"),
    Need("ep_size", one, "serve with --ep-size 1"),
    Need("page_size", one, "rows are moved one by one; serve with --page-size 1"),
    Need("enable_dp_attention", off, "leave it out"),
    Need("enable_lora", off, "the drafter knows the base model alone; leave it out"),
    Need("enable_mixed_chunk", off, "leave it out"),
    Need("enable_deterministic_inference", off, "its attention reads the mask over the prefix too; leave it out"),
    Need("enable_two_batch_overlap", off, "leave it out"),
    Need("enable_pdmux", off, "leave it out"),
    Need("enable_hierarchical_cache", off, "leave it out"),
    Need("enable_memory_saver", off, "leave it out"),
    Need("disaggregation_mode", lambda value: value in (None, "null"), "serve prefill and decode together"),
    Need("kv_cache_dtype", lambda value: value in ("auto", "bfloat16", "bf16"), "serve with --kv-cache-dtype auto"),
    Need("speculative_adaptive", off, "leave it out"),
    Need("speculative_draft_window_size", lambda value: value is None, "leave it out"),
    Need("speculative_eagle_topk", one, "set DDTREE_TOPK_CAP instead"),
    Need("speculative_num_steps", one, "a block is drafted in one pass; leave it out"),
    Need(
        "speculative_dflash_block_size",
        lambda value: value is None,
        "the block is the drafter's own, the verify width is DDTREE_BUDGET + 1; leave it out",
    ),
    Need("speculative_draft_model_path", lambda value: value is not None, "name the drafter's folder"),
)


def refuse_arguments(arguments: Any, attention_backends: tuple[str | None, str | None]) -> None:
    """Raises ValueError for the first of `arguments` (SGLang's, resolved) that is not served under.

    `attention_backends` are those of prefill and decode.
    """
    for need in NEEDS:
        value = getattr(arguments, need.argument)
        if not need.right(value):
            raise ValueError(f"DDTREE does not serve with {need.argument} {value!r}: {need.remedy}.")
    draft = arguments.speculative_draft_attention_backend
    for role, backend in zip(("prefill", "decode", "draft"), (*attention_backends, draft), strict=True):
        if backend != "triton" and not (role == "draft" and backend is None):
            raise ValueError(
                f"DDTREE does not serve with {role} attention {backend!r}: only triton takes a tree mask in this "
                "release; serve with --attention-backend triton."
            )


def refuse_model(model: Any) -> None:
    """Raises ValueError for a target (SGLang's ModelConfig) whose state is not one KV row a token and layer."""
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


def refuse_block(block: int | None, width: int, folder: str) -> int:
    """The drafter's block size. Raises ValueError if it names none, or if the tree is narrower than a block.

    The drafter writes a whole block behind the prefix, into slots that are reserved by the verify width.
    """
    if block is None:
        raise ValueError(f"the drafter at {folder} names no block_size in its config; DDTREE needs it.")
    if block < 2:
        raise ValueError(f"the drafter at {folder} has block_size {block}; it drafts nothing below 2.")
    if width < block:
        raise ValueError(
            f"the tree has {width - 1} nodes beside its root (DDTREE_BUDGET, or --speculative-num-draft-tokens minus "
            f"1), fewer than the {block - 1} drafts of the drafter's block; give at least {block - 1}."
        )
    return block


GRAMMARS = ("json_schema", "regex", "ebnf", "structural_tag")
PENALTIES = {"frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0, "min_new_tokens": 0}


def refusal(request: Any) -> str | None:
    """Why SGLang's `Req` is refused, or None.

    min_p, top_p, top_k, sampling_seed and logit_bias are served: the last is the same at every node.
    """
    sampling = request.sampling_params
    if request.return_logprob:
        return (
            "DDTREE does not return logprobs: a tree's rows are not those of the text alone. Leave out return_logprob."
        )
    if request.return_hidden_states:
        return "DDTREE does not return hidden states. Leave out return_hidden_states."
    if request.custom_logit_processor is not None:
        return "DDTREE does not run custom_logit_processor: it would have to run at every node of the tree."
    for name in GRAMMARS:
        if getattr(sampling, name) is not None:
            return f"DDTREE does not serve {name}: a grammar's mask differs from node to node. Leave it out."
    for name, off in PENALTIES.items():
        value = getattr(sampling, name)
        if value != off:
            return (
                f"{name} is {value}; DDTREE does not serve it, since the penalty follows each node's own ancestors. "
                f"Set it to {off}."
            )
    return None
