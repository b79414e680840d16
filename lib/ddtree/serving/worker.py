"""Run DDTREE's rounds in SGLang: draft a block, build trees, verify them in one pass, sample and commit.

Slots are read once, before the drafter runs. A result has the stride of the drafter's block, whatever the verify width.
Every token of a request, the first included, is sampled by the same rule from the random stream of that request."""

from __future__ import annotations

import os
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from sglang.kernels.ops.speculative.cache_locs import assign_extend_cache_locs_func
from sglang.kernels.ops.speculative.dflash import _prepare_dflash_draft_block_unchecked
from sglang.srt.managers.scheduler import GenerationBatchResult
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
from sglang.srt.model_executor.cuda_graph_config import Backend
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.speculative.dflash_info import DFlashVerifyInput
from sglang.srt.speculative.dflash_info_v2 import DFlashDraftInputV2
from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from torch import Tensor

from ddtree.commit import Commit, plan_commit
from ddtree.kernels.round_ops import coins_on_device, compact_on_device, mask_cells, write_tree_mask_on_device
from ddtree.retrieve import RetrieveTables, tree_positions
from ddtree.serving.attention_backend import choose_attention
from ddtree.serving.config import Settings, draft_block
from ddtree.serving.sampler import NonFiniteMonitor, RequestSeeds, TreeSampler, choose_backend, root_only_tree
from ddtree.serving.tree_drafter import DraftedBatch, TreeDrafter
from ddtree.serving.validation import check_block_size
from ddtree.tree import DraftTree
from ddtree.verify import VerifyResult


@dataclass
class DDTreeVerifyInput(DFlashVerifyInput):
    """What the target's forward reads of one batch of trees; `draft_token` is the flattened nodes, roots first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.custom_mask is None:
            raise ValueError("custom_mask is None; without it the nodes of a tree would attend to their siblings.")

    @classmethod
    def of(cls, tree: DraftTree, prefix_len: Tensor, mask: Tensor) -> DDTreeVerifyInput:
        """`mask` uint8 [cells], as `write_tree_mask_on_device` writes it."""
        return cls(
            draft_token=tree.tokens.reshape(-1),
            positions=tree_positions(tree, prefix_len).reshape(-1),
            draft_token_num=tree.width,
            custom_mask=mask,
            capture_hidden_mode=CaptureHiddenMode.FULL,
        )


class DDTreeWorker(DFlashWorkerV2):
    """DFLASH's worker with a draft tree between its drafter and its target.

    Raises ValueError or BackendUnavailableError at start for a server that could not sample exactly.
    """

    def __init__(self, server_args: Any, gpu_id: int, ps: Any, nccl_port: int, target_worker: Any) -> None:
        self.settings = Settings.from_environment(os.environ)
        self.width = int(server_args.speculative_num_draft_tokens)
        block = check_block_size(draft_block(server_args), self.width, server_args.speculative_draft_model_path)
        self.tree_sampler = TreeSampler(choose_backend(self.settings.backend, "cuda"))
        self.request_seeds = RequestSeeds(int(server_args.random_seed))
        self.nonfinite_monitor = NonFiniteMonitor()
        self.prefill_in_progress: Any = None
        # The drafter's runner, its attention and its graphs read their width from the arguments passed to it.
        draft_args = deepcopy(server_args)
        draft_args.override("ddtree.draft", speculative_num_draft_tokens=block)
        super().__init__(draft_args, gpu_id, ps, nccl_port, target_worker)
        self.server_args = server_args
        self.tree_drafter = TreeDrafter(
            lm_head_weight(self.model_runner.model),
            block=block,
            budget=self.width - 1,
            topk_cap=self.settings.topk_cap,
            temperature=self.settings.draft_temperature,
        )
        self.stock_sample = self.model_runner.sample
        self.model_runner.sample = self._sample_first_tokens

    def init_attention_backends(self) -> None:
        """SGLang calls this before it captures any graph."""
        super().init_attention_backends()
        choose_attention(self.settings.attention, self.model_runner, self.width)

    def init_cuda_graphs(self) -> None:
        self.row_bytes = kv_row_bytes(self.model_runner)
        requests = torch.arange(self.model_runner.req_to_token_pool.size, device=self.device)
        self.first_nodes = requests[:, None] * self.width  # flat index of each tree's root in a batch
        self.depths = torch.arange(self.block_size, device=self.device)
        super().init_cuda_graphs()
        check_captured_width("drafter's graphs", self.draft_model_runner.decode_cuda_graph_runner, self.block_size)
        check_captured_width("verify graphs", self.model_runner.decode_cuda_graph_runner, self.width)

    def _maybe_build_draft_sampler(self) -> TreeDrafter | None:
        if self.server_args.cuda_graph_config.decode.backend == Backend.DISABLED:
            return None
        max_requests = self.draft_model_runner.req_to_token_pool.size
        self.tree_drafter.reserve(min(max_requests, max(self.server_args.cuda_graph_config.decode.bs)))
        return self.tree_drafter

    def forward_batch_generation(self, batch: Any, on_publish: Any = None) -> Any:
        if batch.forward_mode.is_extend() or batch.is_extend_in_batch:
            self.prefill_in_progress = batch
            try:
                return super().forward_batch_generation(batch, on_publish)
            finally:
                self.prefill_in_progress = None
        if batch.forward_mode.is_idle():
            return super().forward_batch_generation(batch, on_publish)
        if not isinstance(batch.spec_info, DFlashDraftInputV2):
            raise RuntimeError(
                f"a decode batch carries {type(batch.spec_info).__name__}; it must carry DFLASH's DFlashDraftInputV2."
            )
        self.nonfinite_monitor.abort_reported()
        batch.seq_lens.record_stream(torch.cuda.current_stream())
        return self._round(batch, on_publish)

    def _validate_phase1_sampling_support(self, batch: Any) -> None:
        """DFLASH's warns that it would take the argmax; here a backend samples, or the server did not start."""

    def _sample_first_tokens(self, logits_output: Any, forward_batch: Any) -> Tensor:
        """The token after each prompt, sampled by the rule and the random stream of every later one."""
        batch = self.prefill_in_progress
        if batch is None:
            return self.stock_sample(logits_output, forward_batch)
        logits = logits_output.next_token_logits
        forward_batch.sampling_info.apply_logits_bias(logits)
        tree, tables = root_only_tree(len(batch.reqs), logits.device)
        seeds = self.request_seeds.of(batch.reqs, logits.device)
        coins = coins_on_device(seeds, forward_batch.seq_lens.long() - 1, 1)
        result = self._sample_paths(tree, tables, logits[:, None], forward_batch.sampling_info, batch.reqs, coins)
        return _without_minus_one(result.predict).long()

    def _round(self, batch: Any, on_publish: Any) -> Any:
        bs = len(batch.seq_lens)
        prefix_len = batch.seq_lens
        slots = assign_extend_cache_locs_func(
            req_pool_indices=batch.req_pool_indices,
            req_to_token=self.model_runner.req_to_token_pool.req_to_token,
            start_offset=prefix_len,
            end_offset=prefix_len + self.width,
            batch_size=bs,
            draft_token_num=self.width,
            device=self.device,
        ).view(bs, self.width)
        host_lens, host_sum = self._host_length_bounds(batch)
        drafted = self._draft_trees(batch, bs, host_lens, host_sum)
        target_out = self._verify_trees(batch, drafted, slots, host_lens, host_sum)
        logits_output = target_out.logits_output
        commit = self._sample_commit(batch, drafted, logits_output.next_token_logits)
        if on_publish is not None:
            on_publish(commit.new_len)
        lengths = commit.lengths.int()
        self._commit_caches(commit, lengths, slots, prefix_len, logits_output.hidden_states)
        logits_output.hidden_states = None  # large, and no request may ask for it
        return GenerationBatchResult(
            logits_output=logits_output,
            next_token_ids=_without_minus_one(commit.tokens).reshape(-1),
            accept_lens=lengths,
            can_run_cuda_graph=target_out.can_run_cuda_graph,
            next_draft_input=self._make_next_draft_input_decode(
                bonus_tokens=_without_minus_one(commit.next_root), new_seq_lens=commit.new_len
            ),
            speculative_num_draft_tokens=self.block_size,
            new_seq_lens=commit.new_len,
        )

    def _host_length_bounds(self, batch: Any) -> tuple[Tensor, int]:
        """Upper bounds of the prefix lengths, int32 [bs] on the host, and their sum.

        Read from the batch where it has them, so that the device is waited for only if it has none.
        """
        reserved = batch.spec_info.reserved_seq_lens_cpu
        if batch.seq_lens_cpu is not None:
            lens = batch.seq_lens_cpu + self.width
        elif reserved is not None:
            lens = reserved
        else:
            lens = batch.seq_lens.cpu()
        lens = lens.to(torch.int32)
        return lens, int(lens.sum())

    def _draft_trees(self, batch: Any, bs: int, host_lens: Tensor, host_sum: int) -> DraftedBatch:
        self._ensure_draft_block_buffers(bs)
        ids, positions = self._draft_block_ids_buf[:bs], self._draft_block_positions_buf[:bs]
        slots = self._draft_verify_out_cache_loc_buf[:bs]
        _prepare_dflash_draft_block_unchecked(
            bonus_tokens=batch.spec_info.bonus_tokens.view(-1),
            prefix_lens=batch.seq_lens.view(-1),
            req_pool_indices=batch.req_pool_indices.view(-1),
            req_to_token=self.model_runner.req_to_token_pool.req_to_token,
            block_ids_out=ids,
            positions_out=positions,
            cache_loc_out=slots,
            mask_token_id=int(self._mask_token_id),
        )
        embedding = self.model_runner.model.get_input_embeddings()(ids)
        forward_batch = ForwardBatch(
            forward_mode=ForwardMode.TARGET_VERIFY,
            batch_size=bs,
            input_ids=ids.flatten(),
            req_pool_indices=batch.req_pool_indices,
            seq_lens=batch.seq_lens,
            out_cache_loc=slots.reshape(-1),
            seq_lens_sum=host_sum,
            seq_lens_cpu=host_lens,
            positions=positions.reshape(-1),
            input_embeds=embedding.view(-1, embedding.shape[-1]),
            spec_algorithm=SpeculativeAlgorithm.DFLASH,
            spec_info=self._draft_block_spec_info,
            capture_hidden_mode=CaptureHiddenMode.NULL,
        )
        with torch.inference_mode():
            out = self.draft_model_runner.forward(forward_batch)
            if out.can_run_graph:
                return self.tree_drafter.read(bs)
            return self.tree_drafter.draft(out.logits_output.hidden_states, ids[:, 0])

    def _verify_trees(self, batch: Any, drafted: DraftedBatch, slots: Tensor, host_lens: Tensor, host_sum: int) -> Any:
        mask = self._mask_buffer(mask_cells(host_sum, len(slots), self.width))
        write_tree_mask_on_device(mask, drafted.visible, batch.seq_lens)
        verify_input = DDTreeVerifyInput.of(drafted.tree, batch.seq_lens, mask)
        batch.out_cache_loc = slots.reshape(-1)
        before = batch.seq_lens_cpu, batch.seq_lens_sum
        batch.seq_lens_cpu, batch.seq_lens_sum = host_lens, host_sum
        forward_batch, _ = verify_input.prepare_for_verify(batch, self.target_worker)
        batch.seq_lens_cpu, batch.seq_lens_sum = before
        return self.target_worker.forward_batch_generation(
            batch=None, forward_batch=forward_batch, is_verify=True, skip_attn_backend_init=True
        )

    def _mask_buffer(self, cells: int) -> Tensor:
        """The buffer that verify graphs read, or one for eager attention only if that is too small."""
        shared = self.model_runner.attn_backend.cuda_graph_custom_mask
        if shared is not None and shared.numel() >= cells:
            return shared[:cells]
        return torch.empty(cells, dtype=torch.uint8, device=self.device)

    def _sample_commit(self, batch: Any, drafted: DraftedBatch, logits: Tensor) -> Commit:
        bs = len(batch.seq_lens)
        rows = logits.view(bs, self.width, -1)
        if batch.sampling_info.logit_bias is not None:
            rows.add_(batch.sampling_info.logit_bias[:, None].to(rows.dtype))
        coins = coins_on_device(self.request_seeds.of(batch.reqs, rows.device), batch.seq_lens, self.width)
        result = self._sample_paths(drafted.tree, drafted.tables, rows, batch.sampling_info, batch.reqs, coins)
        return plan_commit(drafted.tree, result, batch.seq_lens)

    def _sample_paths(
        self,
        tree: DraftTree,
        tables: RetrieveTables,
        logits: Tensor,
        batch_info: Any,
        reqs: list[Any],
        coins: tuple[Tensor, Tensor],
    ) -> VerifyResult:
        """`TreeSampler.sample`; the requests' statuses go to the monitor."""
        parameters = [req.sampling_params for req in reqs]
        result, status = self.tree_sampler.sample(tree, tables, logits, batch_info, parameters, coins)
        if status is not None:
            self.nonfinite_monitor.record(status, reqs)
        return result

    def _commit_caches(
        self, commit: Commit, lengths: Tensor, slots: Tensor, prefix_len: Tensor, hidden: Tensor
    ) -> None:
        """Move the path's KV rows to the front slots in the target's cache, and write the drafter's from `hidden`.

        `slots` int64 [bs, q] are the nodes' slots, `hidden` [bs*q, F] their features.
        """
        bs, length = commit.path.shape
        compact_on_device(self.model_runner.token_to_kv_pool.data_ptrs, self.row_bytes, slots, commit.path)
        kept = commit.path.clamp(min=0) + self.first_nodes[:bs]
        front = slots[:, :length].contiguous()
        positions = prefix_len[:, None] + self.depths[:length]
        self._append_target_hidden_to_draft_kv_by_loc(
            target_hidden=hidden[kept.flatten()],
            cache_loc=front.reshape(-1),
            positions=positions.reshape(-1),
            cache_loc_2d=front,
            commit_lens=lengths,
        )


def lm_head_weight(model: Any) -> Tensor:
    """The output embedding, [V, hidden]. Raises ValueError if it is missing, quantised, split or has added tokens."""
    head = getattr(model, "lm_head", None)
    weight = getattr(head, "weight", None)
    if weight is None or not torch.is_floating_point(weight):
        raise ValueError("DDTREE drafts with the target's lm_head, which must be there and not be quantised.")
    shard = getattr(head, "shard_indices", None)
    if shard is None:
        return weight
    if int(shard.num_added_elements) or int(shard.org_vocab_start_index):
        raise ValueError("DDTREE does not serve a target whose lm_head has added tokens or is split.")
    return weight[: int(shard.num_org_elements)]


def kv_row_bytes(runner: Any) -> int:
    """Bytes of one token's keys (or values) in one layer. Raises ValueError for a cache whose rows cannot be moved."""
    if runner.sliding_window_size is not None:
        raise ValueError("DDTREE does not serve a target with a sliding window.")
    pool = runner.token_to_kv_pool
    if type(pool) is not MHATokenToKVPool or pool.use_hnd:
        layout = " in HND layout" if getattr(pool, "use_hnd", False) else ""
        raise ValueError(
            f"DDTREE moves rows of an MHATokenToKVPool in NHD layout; the target's is {type(pool).__name__}{layout}."
        )
    row_bytes = int(pool.k_buffer[0][0].nbytes)
    if any(int(buffer[0].nbytes) != row_bytes for buffer in (*pool.k_buffer, *pool.v_buffer)):
        raise ValueError("DDTREE moves KV rows of one size; this target's keys and values differ.")
    return row_bytes


def check_captured_width(what: str, runner: Any, width: int) -> None:
    """Raises RuntimeError for graphs captured for another width; a runner without graphs passes."""
    found = getattr(runner, "captured_req_width", width)
    if found != width:
        raise RuntimeError(f"the {what} are {found} tokens a request wide; they must be {width}.")


def _without_minus_one(tokens: Tensor) -> Tensor:
    """0 in place of -1, the padding of paths and the token of aborted requests: an embedding has no row -1."""
    return tokens.clamp(min=0)
