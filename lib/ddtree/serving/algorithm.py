"""Define DDTREE as an algorithm of SGLang's scheduler, and hook the functions of SGLang that a tree needs changed.

SGLang applies hooks in every server process, so each one does nothing unless this server runs DDTREE."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from sglang.srt.speculative.spec_registry import CustomSpecAlgo

from ddtree.serving.config import Settings, draft_block, verify_width
from ddtree.serving.validation import check_arguments, check_block_size, check_model, request_problem

NAME = "DDTREE"


class DDTreeAlgorithm(CustomSpecAlgo):
    """As one of the DFLASH family it gets the capture of hidden states, the drafter's graph and KV reservations."""

    def is_dflash(self) -> bool:
        return True

    def is_dflash_family(self) -> bool:
        return True

    def supports_target_verify_for_draft(self) -> bool:
        return True

    # The scheduler calls the next three on every algorithm, but CustomSpecAlgo lacks them and the registry does not
    # check for them.

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
        """Check everything that can be checked before a model loads, and set the verify width to budget + 1."""
        from sglang.srt.arg_groups.overrides import attention_backends_of, resolved_view
        from sglang.srt.arg_groups.speculative_hook import _handle_dflash

        view = resolved_view(server_args)
        check_arguments(view, attention_backends_of(view))
        check_model(server_args.get_model_config())
        width = verify_width(
            Settings.from_environment(os.environ), os.environ, server_args.speculative_num_draft_tokens
        )
        check_block_size(draft_block(server_args), width, server_args.speculative_draft_model_path)
        server_args.speculative_num_draft_tokens = width
        _handle_dflash(server_args)


def create_worker(server_args: Any) -> type:
    """The worker's class, imported in the process that runs it."""
    from ddtree.serving.worker import DDTreeWorker

    return DDTreeWorker


def register_hooks() -> None:
    """Register the hooks; SGLang applies them when all plugins are loaded, in every process."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    dflash = "sglang.srt.speculative.dflash_utils"
    triton = "sglang.srt.layers.attention.triton_backend.TritonAttnBackend"
    graphs = "sglang.srt.model_executor.runner.decode_cuda_graph_runner.DecodeCudaGraphRunner"
    sizing = "sglang.srt.mem_cache.allocation_sizing"
    runner = "sglang.srt.model_executor.model_runner.ModelRunner"
    for target, hook, kind in (
        (f"{dflash}.resolve_dflash_verify_mask_policy", use_verify_mask, HookType.AROUND),
        (f"{dflash}.validate_dflash_request", validate_request, HookType.AROUND),
        (f"{sizing}.get_req_to_token_extra_context_len", widen_rows, HookType.AFTER),
        (f"{triton}.init_cuda_graph_state", widen_mask, HookType.AFTER),
        (f"{graphs}.capture_one_shape", check_captured_mask, HookType.AFTER),
        (f"{runner}._extend_forward_kwargs", keep_embedding_dtype, HookType.AFTER),
    ):
        HookRegistry.register(target, hook, kind)


def is_ddtree(server_args: Any) -> bool:
    return str(server_args.speculative_algorithm).upper() == NAME


def serves_ddtree() -> bool:
    """Whether this process serves with DDTREE."""
    from sglang.srt.runtime_context import get_server_args

    return is_ddtree(get_server_args())


def use_verify_mask(policy: Callable[..., tuple[str, bool]], *args: Any, **kwargs: Any) -> tuple[str, bool]:
    """Verify graphs are captured with a mask. Without one a graph would attend causally over the flattened tree."""
    name, masked = policy(*args, **kwargs)
    return name, masked or serves_ddtree()


def validate_request(validate: Callable[..., str | None], req: Any, *args: Any, **kwargs: Any) -> str | None:
    """DDTREE's own check in place of DFLASH's."""
    return request_problem(req) if serves_ddtree() else validate(req, *args, **kwargs)


def widen_rows(extra: int, server_args: Any, *args: Any, **kwargs: Any) -> int:
    """A step reserves two verify widths behind the text; a narrower row would run over into the next request's."""
    return max(extra, 4 + 2 * server_args.speculative_num_draft_tokens) if is_ddtree(server_args) else extra


def widen_mask(result: None, backend: Any, max_bs: int, max_num_tokens: int, *args: Any, **kwargs: Any) -> None:
    """Make the graphs' mask large enough for every verify of a full batch.

    Each request may have a text that fills the context, two reserved verify widths behind it, and its own nodes. A
    smaller buffer would make a verify bring a larger mask than the one its graph copies it to.
    """
    if not serves_ddtree() or backend.cuda_graph_custom_mask is None:
        return
    mask = backend.cuda_graph_custom_mask
    cells = max_num_tokens * (backend.max_context_len + 3 * backend.num_draft_tokens)
    backend.cuda_graph_custom_mask = mask.new_zeros(max(cells, mask.numel()))


def check_captured_mask(result: None, runner: Any, *args: Any, **kwargs: Any) -> None:
    """Raises RuntimeError for a verify graph of the target that was captured without the tree mask."""
    if not serves_ddtree() or runner.model_runner.is_draft_worker:
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


def keep_embedding_dtype(
    given: dict[str, Any], runner: Any, forward_batch: Any, *args: Any, **kwargs: Any
) -> dict[str, Any]:
    """Without a graph SGLang casts embeddings to bfloat16, which a drafter served in another dtype cannot multiply."""
    if serves_ddtree() and runner.is_draft_worker and forward_batch.input_embeds is not None:
        return {**given, "input_embeds": forward_batch.input_embeds}
    return given
