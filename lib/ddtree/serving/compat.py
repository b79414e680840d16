"""What the plugin relies on in SGLang 0.5.16, name by name: another release is refused with the first difference."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PINNED = "0.5.16"
SPECULATIVE = "sglang.srt.speculative"
WORKER = f"{SPECULATIVE}.dflash_worker_v2.DFlashWorkerV2"


class IncompatibleSGLangError(RuntimeError):
    """The SGLang installed is not the one that the plugin was read against."""


@dataclass(frozen=True, slots=True)
class Relied:
    """A callable and its parameters, or with `parameters` None a name that must be there."""

    path: str
    parameters: tuple[str, ...] | None = None


RELIED_UPON = (
    Relied(f"{SPECULATIVE}.spec_info.SpeculativeAlgorithm.register",
           ("name", "supports_overlap", "validate_server_args", "spec_class")),
    Relied(f"{SPECULATIVE}.spec_registry.CustomSpecAlgo.create_worker", ("self", "server_args")),
    Relied(f"{SPECULATIVE}.spec_registry.CustomSpecAlgo.handle_server_args", ("self", "server_args")),
    Relied("sglang.srt.managers.overlap_utils.FutureMap",
           ("device", "spec_algo", "req_to_token_pool", "needs_cpu_seq_lens", "needs_confidence_relay")),
    Relied("sglang.srt.arg_groups.speculative_hook._handle_dflash", ("server_args",)),
    Relied("sglang.srt.arg_groups.overrides.resolved_view", ("server_args",)),
    Relied("sglang.srt.arg_groups.overrides.attention_backends_of", ("cfg",)),
    Relied("sglang.srt.server_args.ServerArgs.override", ("self", "source", "fields")),
    Relied("sglang.srt.server_args.ServerArgs.get_model_config", ("self",)),
    Relied(f"{SPECULATIVE}.dflash_utils.parse_dflash_draft_config", ("draft_hf_config",)),
    Relied(f"{SPECULATIVE}.dflash_utils.resolve_dflash_verify_mask_policy", ("attn_backend",)),
    Relied(f"{SPECULATIVE}.dflash_utils.validate_dflash_request", ("req", "enable_overlap")),
    Relied("sglang.srt.mem_cache.allocation_sizing.get_req_to_token_extra_context_len", ("server_args",)),
    Relied("sglang.srt.layers.attention.triton_backend.TritonAttnBackend.init_cuda_graph_state",
           ("self", "max_bs", "max_num_tokens", "kv_indices_buf", "cuda_graph_num_kv_splits_buf")),
    Relied("sglang.srt.layers.attention.triton_backend.TritonAttnBackend.forward_extend",
           ("self", "q", "k", "v", "layer", "forward_batch", "save_kv_cache", "sinks", "score_mod", "aux_tensors")),
    Relied("sglang.srt.layers.attention.triton_backend.ForwardMetadata",
           ("attn_logits", "attn_lse", "max_extend_len", "num_kv_splits", "kv_indptr", "kv_indices", "qo_indptr",
            "custom_mask", "mask_indptr", "window_kv_indptr", "window_kv_indices", "window_num_kv_splits",
            "window_kv_offsets", "swa_attn_logits", "swa_out_cache_loc", "out_cache_loc_full_physical")),
    Relied("sglang.srt.mem_cache.memory_pool.KVWriteLoc", ("loc", "swa_loc", "full_loc")),
    Relied("sglang.srt.mem_cache.memory_pool.MHATokenToKVPool.set_kv_buffer",
           ("self", "layer", "loc_info", "cache_k", "cache_v", "k_scale", "v_scale", "layer_id_override",
            "dcp_kv_mask")),
    Relied("sglang.srt.layers.radix_attention.AttentionType.DECODER"),
    Relied("sglang.srt.layers.radix_attention.RadixAttention"),
    Relied("sglang.srt.model_executor.runner.decode_cuda_graph_runner.DecodeCudaGraphRunner.capture_one_shape",
           ("self", "size", "forward", "stream_idx", "variant_label")),
    Relied(WORKER, ("server_args", "gpu_id", "ps", "nccl_port", "target_worker")),
    Relied(f"{WORKER}.forward_batch_generation", ("self", "batch", "on_publish")),
    Relied(f"{WORKER}.init_attention_backends", ("self",)),
    Relied(f"{WORKER}.init_cuda_graphs", ("self",)),
    Relied(f"{WORKER}._maybe_build_draft_sampler", ("self",)),
    Relied(f"{WORKER}._ensure_draft_block_buffers", ("self", "bs")),
    Relied(f"{WORKER}._append_target_hidden_to_draft_kv_by_loc",
           ("self", "target_hidden", "cache_loc", "positions", "cache_loc_2d", "commit_lens")),
    Relied(f"{WORKER}._validate_phase1_sampling_support", ("self", "batch")),
    Relied(f"{WORKER}._make_next_draft_input_decode", ("self", "bonus_tokens", "new_seq_lens")),
    Relied("sglang.kernels.ops.speculative.dflash._prepare_dflash_draft_block_unchecked",
           ("bonus_tokens", "prefix_lens", "req_pool_indices", "req_to_token", "block_ids_out", "positions_out",
            "cache_loc_out", "mask_token_id")),
    Relied("sglang.kernels.ops.speculative.cache_locs.assign_extend_cache_locs_func",
           ("req_pool_indices", "req_to_token", "start_offset", "end_offset", "batch_size", "draft_token_num",
            "device")),
    Relied(f"{SPECULATIVE}.dflash_info.DFlashVerifyInput",
           ("draft_token", "positions", "draft_token_num", "topk", "custom_mask", "capture_hidden_mode",
            "num_tokens_per_req", "ragged_verify_layout")),
    Relied(f"{SPECULATIVE}.dflash_info.DFlashVerifyInput.prepare_for_verify", ("self", "batch", "target_worker")),
    Relied("sglang.srt.managers.tp_worker.TpModelWorker.forward_batch_generation",
           ("self", "batch", "forward_batch", "pp_proxy_tensors", "is_verify", "skip_attn_backend_init",
            "capture_hidden_mode")),
    Relied("sglang.srt.model_executor.model_runner.ModelRunner._extend_forward_kwargs",
           ("self", "forward_batch", "pp_proxy_tensors")),
    Relied("sglang.srt.model_executor.model_runner.ModelRunner.sample", ("self", "logits_output", "forward_batch")),
    Relied("sglang.srt.sampling.sampling_batch_info.SamplingBatchInfo.apply_logits_bias", ("self", "logits")),
    Relied("sglang.srt.mem_cache.memory_pool.MHATokenToKVPool._init_data_ptrs_and_strides", ("self",)),
    Relied("sglang.srt.plugins.hook_registry.HookType.AROUND"),
    Relied("sglang.srt.managers.schedule_batch.FINISH_ABORT"),
)  # fmt: skip


def check_release(version: Callable[[str], str] = importlib.metadata.version) -> None:
    """Raises IncompatibleSGLangError unless the distribution `sglang` is the pinned one."""
    try:
        found = version("sglang")
    except importlib.metadata.PackageNotFoundError:
        raise IncompatibleSGLangError(f"sglang is not installed; DDTREE needs sglang=={PINNED}.") from None
    if found != PINNED:
        raise IncompatibleSGLangError(
            f"sglang {found} is installed; DDTREE was read against {PINNED} alone, whose inner workings it relies on. "
            f"Install sglang=={PINNED}."
        )


def check_signatures(relied: tuple[Relied, ...] = RELIED_UPON) -> None:
    """Raises IncompatibleSGLangError naming the first that is missing or takes other parameters."""
    for one in relied:
        try:
            found = _resolve(one.path)
        except (ImportError, AttributeError) as error:
            raise IncompatibleSGLangError(
                f"{one.path} is not in this build of sglang ({error}); DDTREE relies on it. Install sglang=={PINNED}."
            ) from error
        if one.parameters is None:
            continue
        names = tuple(inspect.signature(found).parameters)
        if names != one.parameters:
            raise IncompatibleSGLangError(
                f"{one.path} takes ({', '.join(names)}) in this build of sglang; DDTREE calls it with "
                f"({', '.join(one.parameters)}). Install sglang=={PINNED}."
            )


def _resolve(path: str) -> Any:
    """What stands at a dotted path; an import that fails within a module is told as what it is."""
    parts = path.split(".")
    found: Any = importlib.import_module(parts[0])
    for place, part in enumerate(parts[1:], start=2):
        name = ".".join(parts[:place])
        if inspect.ismodule(found) and not hasattr(found, part):
            try:
                importlib.import_module(name)
            except ModuleNotFoundError as error:
                if error.name != name:
                    raise
        found = getattr(found, part)
    return found
