"""DDTREE as an algorithm of SGLang's scheduler, and the hooks that do nothing unless the server runs it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from sglang.srt.speculative.spec_registry import CustomSpecAlgo

from ddtree.serving.config import Settings, draft_block, verify_width
from ddtree.serving.validation import refusal, refuse_arguments, refuse_block, refuse_model


def install() -> None:
    """Register the hooks; SGLang applies them when all plugins are loaded, in every process."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    speculative = "sglang.srt.speculative.dflash_utils"
    triton = "sglang.srt.layers.attention.triton_backend.TritonAttnBackend"
    runner = "sglang.srt.model_executor.runner.decode_cuda_graph_runner.DecodeCudaGraphRunner"
    sizing = "sglang.srt.mem_cache.allocation_sizing"
    model = "sglang.srt.model_executor.model_runner.ModelRunner"
    for target, hook, kind in (
        (f"{speculative}.resolve_dflash_verify_mask_policy", ask_for_mask, HookType.AROUND),
        (f"{speculative}.validate_dflash_request", refuse_request, HookType.AROUND),
        (f"{sizing}.get_req_to_token_extra_context_len", widen_rows, HookType.AFTER),
        (f"{triton}.init_cuda_graph_state", widen_mask, HookType.AFTER),
        (f"{runner}.capture_one_shape", require_mask, HookType.AFTER),
        (f"{model}._extend_forward_kwargs", keep_dtype, HookType.AFTER),
    ):
        HookRegistry.register(target, hook, kind)


def serving_ddtree() -> bool:
    """Whether this process serves with DDTREE."""
    from sglang.srt.runtime_context import get_server_args

    return is_ddtree(get_server_args())


def is_ddtree(server_args: Any) -> bool:
    return str(server_args.speculative_algorithm).upper() == NAME


def ask_for_mask(policy: Callable[..., tuple[str, bool]], *args: Any, **kwargs: Any) -> tuple[str, bool]:
    """Verify graphs are captured with a mask. Without one a graph would attend causally over the flattened tree."""
    name, masked = policy(*args, **kwargs)
    return name, masked or serving_ddtree()


def refuse_request(validate: Callable[..., str | None], req: Any, *args: Any, **kwargs: Any) -> str | None:
    return refusal(req) if serving_ddtree() else validate(req, *args, **kwargs)


def widen_rows(extra: int, server_args: Any, *args: Any, **kwargs: Any) -> int:
    """A step reserves two verify widths behind the text; a narrower row would run over into the next request's."""
    return max(extra, 4 + 2 * server_args.speculative_num_draft_tokens) if is_ddtree(server_args) else extra


def widen_mask(result: None, backend: Any, max_bs: int, max_num_tokens: int, *args: Any, **kwargs: Any) -> None:
    """Room for what a full batch may reserve, two widths behind a text that fills the context, and for its own nodes.

    A verify that finds no room would bring a mask larger than the one that its graph copies it to.
    """
    if not serving_ddtree() or backend.cuda_graph_custom_mask is None:
        return
    mask = backend.cuda_graph_custom_mask
    cells = max_num_tokens * (backend.max_context_len + 3 * backend.num_draft_tokens)
    backend.cuda_graph_custom_mask = mask.new_zeros(max(cells, mask.numel()))


def require_mask(result: None, runner: Any, *args: Any, **kwargs: Any) -> None:
    """Raises RuntimeError for a verify graph of the target that was captured without the tree mask."""
    if not serving_ddtree() or runner.model_runner.is_draft_worker:
        return
    backend = runner.attn_backend
    if (
        backend.cuda_graph_custom_mask is None
        or backend.forward_metadata.custom_mask is not backend.cuda_graph_custom_mask
    ):
        raise RuntimeError(
            "a verify graph was captured without the tree mask; it would attend causally over the flattened tree. "
            "Serve with --disable-cuda-graph and report this."
        )


def keep_dtype(given: dict[str, Any], runner: Any, forward_batch: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Without a graph SGLang casts embeddings to bfloat16, which a drafter served in another dtype cannot multiply."""
    if serving_ddtree() and runner.is_draft_worker and forward_batch.input_embeds is not None:
        return {**given, "input_embeds": forward_batch.input_embeds}
    return given


NAME = "DDTREE"


class DDTreeAlgorithm(CustomSpecAlgo):
    """Aux capture, the drafter's graph and KV reservations follow from the DFLASH family."""

    def is_dflash(self) -> bool:
        return True

    def is_dflash_family(self) -> bool:
        return True

    def supports_target_verify_for_draft(self) -> bool:
        return True

    # The scheduler calls these three of every algorithm; the base class lacks them and the registry does not look.

    def need_topk(self) -> bool:
        return False

    def carries_draft_hidden_states(self) -> bool:
        return False

    def create_future_map(
        self,
        device: Any,
        req_to_token_pool: Any,
        needs_cpu_seq_lens: bool = True,
        needs_confidence_relay: bool = False,
    ) -> Any:
        from sglang.srt.managers.overlap_utils import FutureMap

        return FutureMap(device, self, req_to_token_pool, needs_cpu_seq_lens, needs_confidence_relay)

    def handle_server_args(self, server_args: Any) -> None:
        """Refuse what is not served, before any model is loaded, and set the verify width to budget + 1."""
        from sglang.srt.arg_groups.overrides import attention_backends_of, resolved_view
        from sglang.srt.arg_groups.speculative_hook import _handle_dflash

        view = resolved_view(server_args)
        refuse_arguments(view, attention_backends_of(view))
        refuse_model(server_args.get_model_config())
        width = verify_width(
            Settings.from_environment(os.environ), os.environ, server_args.speculative_num_draft_tokens
        )
        refuse_block(draft_block(server_args), width, server_args.speculative_draft_model_path)
        server_args.speculative_num_draft_tokens = width
        _handle_dflash(server_args)


def create_worker(server_args: Any) -> type:
    """The worker's class, imported in the process that runs it."""
    from ddtree.serving.worker import DDTreeWorker

    return DDTreeWorker
