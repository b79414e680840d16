"""Check that the SGLang installed is the release the plugin was written against, symbol by symbol.

Another release, or a build in which a symbol is missing or takes other parameters, is an error that names the first
difference."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PINNED = "0.5.16"
SRT = "sglang.srt"
SPECULATIVE = f"{SRT}.speculative"
WORKER = f"{SPECULATIVE}.dflash_worker_v2.DFlashWorkerV2"


class IncompatibleSGLangError(RuntimeError):
    """The SGLang installed is not the one the plugin was written against."""


@dataclass(frozen=True, slots=True)
class RequiredSymbol:
    """A callable and the names of its parameters; with `parameters` None, a name that only has to exist."""

    path: str
    parameters: tuple[str, ...] | None = None


REQUIRED_SYMBOLS = (
    RequiredSymbol(f"{SPECULATIVE}.spec_info.SpeculativeAlgorithm.register",
        ("name", "supports_overlap", "validate_server_args", "spec_class")),
    RequiredSymbol(f"{SPECULATIVE}.spec_registry.CustomSpecAlgo.create_worker", ("self", "server_args")),
    RequiredSymbol(f"{SPECULATIVE}.spec_registry.CustomSpecAlgo.handle_server_args", ("self", "server_args")),
    RequiredSymbol(f"{SRT}.managers.overlap_utils.FutureMap",
        ("device", "spec_algo", "req_to_token_pool", "needs_cpu_seq_lens", "needs_confidence_relay")),
    RequiredSymbol(f"{SRT}.arg_groups.speculative_hook._handle_dflash", ("server_args",)),
    RequiredSymbol(f"{SRT}.arg_groups.overrides.resolved_view", ("server_args",)),
    RequiredSymbol(f"{SRT}.arg_groups.overrides.attention_backends_of", ("cfg",)),
    RequiredSymbol(f"{SRT}.server_args.ServerArgs.override", ("self", "source", "fields")),
    RequiredSymbol(f"{SRT}.server_args.ServerArgs.get_model_config", ("self",)),
    RequiredSymbol(f"{SPECULATIVE}.dflash_utils.parse_dflash_draft_config", ("draft_hf_config",)),
    RequiredSymbol(f"{SPECULATIVE}.dflash_utils.resolve_dflash_verify_mask_policy", ("attn_backend",)),
    RequiredSymbol(f"{SPECULATIVE}.dflash_utils.validate_dflash_request", ("req", "enable_overlap")),
    RequiredSymbol(f"{SRT}.mem_cache.allocation_sizing.get_req_to_token_extra_context_len", ("server_args",)),
    RequiredSymbol(f"{SRT}.layers.attention.triton_backend.TritonAttnBackend.init_cuda_graph_state",
        ("self", "max_bs", "max_num_tokens", "kv_indices_buf", "cuda_graph_num_kv_splits_buf")),
    RequiredSymbol(f"{SRT}.layers.attention.triton_backend.TritonAttnBackend.forward_extend",
        ("self", "q", "k", "v", "layer", "forward_batch", "save_kv_cache", "sinks", "score_mod", "aux_tensors")),
    RequiredSymbol(f"{SRT}.layers.attention.triton_backend.ForwardMetadata",
        ("attn_logits", "attn_lse", "max_extend_len", "num_kv_splits", "kv_indptr", "kv_indices", "qo_indptr",
         "custom_mask", "mask_indptr", "window_kv_indptr", "window_kv_indices", "window_num_kv_splits",
         "window_kv_offsets", "swa_attn_logits", "swa_out_cache_loc", "out_cache_loc_full_physical")),
    RequiredSymbol(f"{SRT}.mem_cache.memory_pool.KVWriteLoc", ("loc", "swa_loc", "full_loc")),
    RequiredSymbol(f"{SRT}.mem_cache.memory_pool.MHATokenToKVPool.set_kv_buffer",
        ("self", "layer", "loc_info", "cache_k", "cache_v", "k_scale", "v_scale", "layer_id_override",
         "dcp_kv_mask")),
    RequiredSymbol(f"{SRT}.layers.radix_attention.AttentionType.DECODER"),
    RequiredSymbol(f"{SRT}.layers.radix_attention.RadixAttention"),
    RequiredSymbol(f"{SRT}.model_executor.runner.decode_cuda_graph_runner.DecodeCudaGraphRunner.capture_one_shape",
        ("self", "size", "forward", "stream_idx", "variant_label")),
    RequiredSymbol(WORKER, ("server_args", "gpu_id", "ps", "nccl_port", "target_worker")),
    RequiredSymbol(f"{WORKER}.forward_batch_generation", ("self", "batch", "on_publish")),
    RequiredSymbol(f"{WORKER}.init_attention_backends", ("self",)),
    RequiredSymbol(f"{WORKER}.init_cuda_graphs", ("self",)),
    RequiredSymbol(f"{WORKER}._maybe_build_draft_sampler", ("self",)),
    RequiredSymbol(f"{WORKER}._ensure_draft_block_buffers", ("self", "bs")),
    RequiredSymbol(f"{WORKER}._append_target_hidden_to_draft_kv_by_loc",
        ("self", "target_hidden", "cache_loc", "positions", "cache_loc_2d", "commit_lens")),
    RequiredSymbol(f"{WORKER}._validate_phase1_sampling_support", ("self", "batch")),
    RequiredSymbol(f"{WORKER}._make_next_draft_input_decode", ("self", "bonus_tokens", "new_seq_lens")),
    RequiredSymbol("sglang.kernels.ops.speculative.dflash._prepare_dflash_draft_block_unchecked",
        ("bonus_tokens", "prefix_lens", "req_pool_indices", "req_to_token", "block_ids_out", "positions_out",
         "cache_loc_out", "mask_token_id")),
    RequiredSymbol("sglang.kernels.ops.speculative.cache_locs.assign_extend_cache_locs_func",
        ("req_pool_indices", "req_to_token", "start_offset", "end_offset", "batch_size", "draft_token_num",
         "device")),
    RequiredSymbol(f"{SPECULATIVE}.dflash_info.DFlashVerifyInput",
        ("draft_token", "positions", "draft_token_num", "topk", "custom_mask", "capture_hidden_mode",
         "num_tokens_per_req", "ragged_verify_layout")),
    RequiredSymbol(f"{SPECULATIVE}.dflash_info.DFlashVerifyInput.prepare_for_verify",
        ("self", "batch", "target_worker")),
    RequiredSymbol(f"{SRT}.managers.tp_worker.TpModelWorker.forward_batch_generation",
        ("self", "batch", "forward_batch", "pp_proxy_tensors", "is_verify", "skip_attn_backend_init",
         "capture_hidden_mode")),
    RequiredSymbol(f"{SRT}.model_executor.model_runner.ModelRunner._extend_forward_kwargs",
        ("self", "forward_batch", "pp_proxy_tensors")),
    RequiredSymbol(f"{SRT}.model_executor.model_runner.ModelRunner.sample", ("self", "logits_output", "forward_batch")),
    RequiredSymbol(f"{SRT}.sampling.sampling_batch_info.SamplingBatchInfo.apply_logits_bias", ("self", "logits")),
    RequiredSymbol(f"{SRT}.mem_cache.memory_pool.MHATokenToKVPool._init_data_ptrs_and_strides", ("self",)),
    RequiredSymbol(f"{SRT}.plugins.hook_registry.HookType.AROUND"),
    RequiredSymbol(f"{SRT}.managers.schedule_batch.FINISH_ABORT"),
)  # fmt: skip


def check_release(version: Callable[[str], str] = importlib.metadata.version) -> None:
    """Raises IncompatibleSGLangError unless the distribution `sglang` is the pinned one."""
    try:
        found = version("sglang")
    except importlib.metadata.PackageNotFoundError:
        raise IncompatibleSGLangError(f"sglang is not installed; DDTREE needs sglang=={PINNED}.") from None
    if found != PINNED:
        raise IncompatibleSGLangError(
            f"sglang {found} is installed; DDTREE uses internals of {PINNED} and works with that release only. "
            f"Install sglang=={PINNED}."
        )


def check_signatures(required: tuple[RequiredSymbol, ...] = REQUIRED_SYMBOLS) -> None:
    """Raises IncompatibleSGLangError naming the first symbol that is missing or takes other parameters."""
    for symbol in required:
        try:
            found = _resolve(symbol.path)
        except (ImportError, AttributeError) as error:
            raise IncompatibleSGLangError(
                f"{symbol.path} is not in this build of sglang ({error}); DDTREE uses it. Install sglang=={PINNED}."
            ) from error
        if symbol.parameters is None:
            continue
        names = tuple(inspect.signature(found).parameters)
        if names != symbol.parameters:
            raise IncompatibleSGLangError(
                f"{symbol.path} takes ({', '.join(names)}) in this build of sglang; DDTREE calls it with "
                f"({', '.join(symbol.parameters)}). Install sglang=={PINNED}."
            )


def _resolve(path: str) -> Any:
    """The object at a dotted path. An ImportError from inside a module is passed on as it is."""
    parts = path.split(".")
    found: Any = importlib.import_module(parts[0])
    for depth, part in enumerate(parts[1:], start=2):
        name = ".".join(parts[:depth])
        if inspect.ismodule(found) and not hasattr(found, part):
            try:
                importlib.import_module(name)
            except ModuleNotFoundError as error:
                if error.name != name:
                    raise
        found = getattr(found, part)
    return found
