"""A toy of SGLang, as far as the plugin touches it: modules of stand-ins, and a target and drafter over real slots.

The target's row is the sum of the keys that it may look at, in whole numbers, so that any key too many, too few or out
of place changes the text. It reads slots and mask in SGLang's layout by itself, not through the plugin's code.
With graphs on, batches run at the next captured size: inputs lie in buffers where what an earlier batch left behind the
real rows stays, the mask is read from the attention's own buffer, and the drafter's tail sees padded rows too.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from enum import Enum, auto
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

VOCAB, HIDDEN, BLOCK, CONTEXT = 6, 5, 4, 64
MOST_WIDTH = 17
CALLER_MODULES = ("worker", "algorithm", "attention_backend")


class Mode(Enum):
    EXTEND = auto()
    DECODE = auto()
    TARGET_VERIFY = auto()
    IDLE = auto()

    def is_extend(self) -> bool:
        return self is Mode.EXTEND

    def is_target_verify(self) -> bool:
        return self is Mode.TARGET_VERIFY

    def is_idle(self) -> bool:
        return self is Mode.IDLE


class HiddenMode(Enum):
    NULL = 0
    FULL = 2


@dataclass
class VerifyInput:
    draft_token: Tensor
    positions: Tensor
    draft_token_num: int
    topk: int = 1
    custom_mask: Tensor | None = None
    capture_hidden_mode: Any = None
    num_tokens_per_req: int = -1

    def __post_init__(self) -> None:
        self.num_tokens_per_req = self.draft_token_num

    def prepare_for_verify(self, batch: Any, target: Any) -> tuple[Any, bool]:
        return SimpleNamespace(
            spec_info=self, req_pool_indices=batch.req_pool_indices, seq_lens=batch.seq_lens,
            out_cache_loc=batch.out_cache_loc, seq_lens_sum=batch.seq_lens_sum,
        ), False  # fmt: skip


@dataclass
class DraftInput:
    bonus_tokens: Tensor
    new_seq_lens: Tensor
    reserved_seq_lens_cpu: Tensor | None = None


@dataclass
class Pool:
    k_buffer: list[Tensor]
    v_buffer: list[Tensor]
    use_hnd: bool = False
    data_ptrs: Tensor = field(default_factory=lambda: torch.zeros(0))


@dataclass
class WriteLoc:
    loc: Tensor
    swa_loc: Tensor | None = None
    full_loc: Tensor | None = None


class AttentionKind(Enum):
    DECODER = auto()
    ENCODER_ONLY = auto()


class AttentionLayer(torch.nn.Module):
    """What the plugin reads of a layer that is nothing but attention."""

    def __init__(self, heads: int, kv_heads: int, size: int) -> None:
        super().__init__()
        self.layer_id, self.scaling = 0, size**-0.5
        self.tp_q_head_num, self.tp_k_head_num, self.tp_v_head_num = heads, kv_heads, kv_heads
        self.qk_head_dim = self.v_head_dim = size
        self.attn_type, self.is_cross_attention = AttentionKind.DECODER, False
        self.logit_cap, self.xai_temperature_len, self.sliding_window_size = 0.0, -1, -1
        self.k_scale = self.v_scale = None


class TritonBackend:
    """The target's attention, which answers with what it was given."""

    dcp_size, enable_deterministic = 1, False

    def __init__(self, pool: Any = None, metadata: Any = None) -> None:
        self.token_to_kv_pool, self.forward_metadata = pool, metadata

    def forward_extend(self, *given: Any, **asked: Any) -> tuple[str, Any, Any]:
        return "stock", given, asked


class Captured:
    """Inputs of graphs of the sizes given: real rows first, then leftovers, harmless in slot, row and length."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes
        self.buffers: dict[str, Tensor] = {}

    def padded(self, rows: int, **inputs: Tensor) -> SimpleNamespace:
        """Each input [rows * n], as a view of its buffer at the next size; padding writes slot 0 at length 1."""
        size = min(size for size in self.sizes if size >= rows)
        views = {}
        for name, value in inputs.items():
            each = value.numel() // rows
            buffer = self.buffers.setdefault(name, torch.ones(max(self.sizes) * each, dtype=value.dtype))
            buffer[: rows * each] = value.flatten()
            if name in ("out_cache_loc", "req_pool_indices", "seq_lens"):
                buffer[rows * each :] = int(name == "seq_lens")
            views[name] = buffer[: size * each]
        return SimpleNamespace(**views)


class Runner:
    """The target: keys of whole numbers, one row of logits a token."""

    def __init__(self, rng: torch.Generator, requests: int, graphs: tuple[int, ...]) -> None:
        self.embedding = torch.randint(-3, 4, (VOCAB, HIDDEN), generator=rng).double()
        self.head = torch.randn(VOCAB, HIDDEN, generator=rng, dtype=torch.float64)
        self.model = SimpleNamespace(
            lm_head=SimpleNamespace(weight=self.head.float()), get_input_embeddings=lambda: lambda ids: ids[..., None]
        )
        slots = requests * CONTEXT + 1
        table = (torch.randperm(slots - 1, generator=rng) + 1).view(requests, CONTEXT)
        keys = [torch.zeros(slots, HIDDEN, dtype=torch.float64) for _ in range(2)]
        self.pools = SimpleNamespace(req_to_token=table, size=requests), Pool(keys[:1], keys[1:])
        self.req_to_token_pool: Any = None
        self.token_to_kv_pool: Any = None
        self.captured = Captured(graphs) if graphs else None
        self.most_rows = max(graphs, default=0) * MOST_WIDTH
        self.attn_backend: Any = None
        self.sliding_window_size = None
        self.decode_cuda_graph_runner = None

    def alloc_memory_pool(self) -> None:
        """As in SGLang, after the workers are made and before attention is."""
        self.req_to_token_pool, self.token_to_kv_pool = self.pools

    def init_attention_backends(self) -> None:
        self.attn_backend = SimpleNamespace(cuda_graph_custom_mask=None)

    def init_cuda_graphs(self) -> None:
        """The target's graphs are captured before the drafter's."""
        if self.captured is not None:
            mask = torch.ones(self.most_rows * (CONTEXT + MOST_WIDTH), dtype=torch.uint8)
            self.attn_backend.cuda_graph_custom_mask = mask

    def sample(self, *_: Any) -> Tensor:
        raise AssertionError("first tokens are the plugin's to draw")

    def key(self, ids: Tensor, positions: Tensor) -> Tensor:
        return self.embedding[ids] * (1 + positions % 5)[..., None]

    def logits(self, hidden: Tensor) -> Tensor:
        return torch.sin(hidden @ self.head.T) * 4

    def verify(self, forward_batch: Any) -> tuple[Tensor, Tensor]:
        info, rows = forward_batch.spec_info, len(forward_batch.seq_lens)
        q, mask = info.draft_token_num, info.custom_mask
        at = SimpleNamespace(
            draft_token=info.draft_token, positions=info.positions, out_cache_loc=forward_batch.out_cache_loc,
            seq_lens=forward_batch.seq_lens, req_pool_indices=forward_batch.req_pool_indices,
        )  # fmt: skip
        if self.captured is not None:
            at = self.captured.padded(rows, **vars(at))
            shared = self.attn_backend.cuda_graph_custom_mask
            shared[: len(mask)] = mask.clone()
            mask = shared
        slots = at.out_cache_loc.view(-1, q)
        new = self.key(at.draft_token, at.positions).view(-1, q, HIDDEN)
        keys = self.token_to_kv_pool.k_buffer[0]
        keys[slots], self.token_to_kv_pool.v_buffer[0][slots] = new, -new
        hidden, start = [], 0
        for b, length in enumerate(at.seq_lens.tolist()):
            prefix = self.req_to_token_pool.req_to_token[at.req_pool_indices[b], :length]
            sees = mask[start : start + q * (length + q)].view(q, length + q)[:, length:]
            start += q * (length + q)
            hidden.append(keys[prefix].sum(0) + sees.double() @ new[b])
        found = torch.cat(hidden)[: rows * q]
        return found, self.logits(found)


class DraftRunner:
    """A drafter that reads its own cache at the prefix, so rows missing or misplaced change its drafts."""

    def __init__(self, rng: torch.Generator, target: Runner) -> None:
        self.target = target
        self.cache = torch.zeros_like(target.pools[1].k_buffer[0])
        self.rows = torch.randn(BLOCK, HIDDEN, generator=rng)
        self.decode_cuda_graph_runner = None
        self.req_to_token_pool: Any = None
        self.captured = None if target.captured is None else Captured(target.captured.sizes)
        self.tail: Any = None

    def forward(self, forward_batch: Any) -> Any:
        at, rows = forward_batch, len(forward_batch.seq_lens)
        if self.captured is not None:
            at = self.captured.padded(
                rows, input_ids=at.input_ids, seq_lens=at.seq_lens, req_pool_indices=at.req_pool_indices
            )
        hidden = []
        for b, length in enumerate(at.seq_lens.tolist()):
            prefix = self.target.req_to_token_pool.req_to_token[at.req_pool_indices[b], :length]
            hidden.append(torch.sin(self.cache[prefix].sum(0).float() + self.rows))
        found = torch.cat(hidden)
        if self.captured is not None:
            self.tail(found, at.input_ids)
        output = SimpleNamespace(hidden_states=found[: rows * BLOCK])
        return SimpleNamespace(logits_output=output, can_run_graph=self.captured is not None)


class Worker:
    """What DDTreeWorker inherits."""

    def __init__(self, server_args: Any, gpu_id: int, ps: Any, nccl_port: int, target_worker: Any) -> None:
        self.server_args = server_args
        self.target_worker = target_worker
        self.model_runner = target_worker.model_runner
        self.draft_model_runner = target_worker.draft_runner
        self.block_size = server_args.speculative_num_draft_tokens
        self.device = "cpu"
        self._mask_token_id = 0
        self._draft_block_spec_info = None

    def alloc_memory_pool(self) -> None:
        self.draft_model_runner.req_to_token_pool = self.model_runner.req_to_token_pool

    def init_attention_backends(self) -> None:
        """The drafter's, of which these stand-ins need nothing."""

    def init_cuda_graphs(self) -> None:
        self.draft_model_runner.tail = self._maybe_build_draft_sampler()
        assert (self.draft_model_runner.tail is None) == (self.draft_model_runner.captured is None)

    def _ensure_draft_block_buffers(self, bs: int) -> None:
        self._draft_block_ids_buf = torch.zeros(bs, self.block_size, dtype=torch.int64)
        self._draft_block_positions_buf = torch.zeros(bs, self.block_size, dtype=torch.int64)
        self._draft_verify_out_cache_loc_buf = torch.zeros(bs, self.block_size, dtype=torch.int64)

    def _make_next_draft_input_decode(self, *, bonus_tokens: Tensor, new_seq_lens: Tensor) -> DraftInput:
        return DraftInput(bonus_tokens, new_seq_lens)

    def _append_target_hidden_to_draft_kv_by_loc(
        self, *, target_hidden: Tensor, cache_loc: Tensor, positions: Tensor, cache_loc_2d: Tensor, commit_lens: Tensor
    ) -> None:
        assert torch.equal(cache_loc, cache_loc_2d.flatten())
        assert cache_loc_2d.is_contiguous()
        rows = (target_hidden * (1 + positions % 3)[:, None]).view(*cache_loc_2d.shape, -1)
        for row, place, length in zip(rows, cache_loc_2d, commit_lens.tolist(), strict=True):
            self.draft_model_runner.cache[place[:length]] = row[:length]

    def forward_batch_generation(self, batch: Any, on_publish: Any = None) -> Any:
        """Prefill as DFLASH's worker does it: the target's pass, a sampled token, the drafter's cache."""
        runner, tokens, last = self.model_runner, [], []
        for b, req in enumerate(batch.reqs):
            ids = torch.tensor(req.origin_input_ids)
            place = torch.arange(len(ids))
            slots = runner.req_to_token_pool.req_to_token[batch.req_pool_indices[b], : len(ids)]
            keys = runner.key(ids, place)
            runner.token_to_kv_pool.k_buffer[0][slots] = keys
            runner.token_to_kv_pool.v_buffer[0][slots] = -keys
            hidden = keys.cumsum(0)
            self.draft_model_runner.cache[slots] = hidden * (1 + place % 3)[:, None]
            last.append(runner.logits(hidden[-1]))
        tokens = runner.sample(
            SimpleNamespace(next_token_logits=torch.stack(last).float()),
            SimpleNamespace(sampling_info=batch.sampling_info, seq_lens=batch.seq_lens),
        )
        return SimpleNamespace(
            next_token_ids=tokens, next_draft_input=DraftInput(tokens, batch.seq_lens), new_seq_lens=batch.seq_lens
        )


class TargetWorker:
    def __init__(self, seed: int = 0, requests: int = 3, graphs: tuple[int, ...] = ()) -> None:
        rng = torch.Generator().manual_seed(seed)
        self.model_runner = Runner(rng, requests, graphs)
        self.draft_runner = DraftRunner(rng, self.model_runner)

    def forward_batch_generation(self, batch: None, forward_batch: Any, is_verify: bool, **_: Any) -> Any:
        assert batch is None
        assert is_verify
        hidden, logits = self.model_runner.verify(forward_batch)
        output = SimpleNamespace(hidden_states=hidden, next_token_logits=logits.float())
        return SimpleNamespace(logits_output=output, can_run_cuda_graph=False)


class Arguments(SimpleNamespace):
    def override(self, source: str, **fields: Any) -> None:
        self.__dict__.update(fields)


def prepare_block(
    *, bonus_tokens: Tensor, prefix_lens: Tensor, req_pool_indices: Tensor, req_to_token: Tensor, block_ids_out: Tensor,
    positions_out: Tensor, cache_loc_out: Tensor, mask_token_id: int,
) -> None:  # fmt: skip
    block_ids_out.fill_(mask_token_id)
    block_ids_out[:, 0] = bonus_tokens
    positions_out.copy_(prefix_lens[:, None] + torch.arange(block_ids_out.shape[1]))
    cache_loc_out.copy_(req_to_token[req_pool_indices[:, None], positions_out])


def extend_locs(
    *, req_pool_indices: Tensor, req_to_token: Tensor, start_offset: Tensor, end_offset: Tensor, batch_size: int,
    draft_token_num: int, device: str,
) -> Tensor:  # fmt: skip
    place = start_offset[:, None] + torch.arange(draft_token_num)
    return req_to_token[req_pool_indices[:, None], place].flatten()


class CustomSpecAlgo:
    def __init__(self, name: str, factory: Any, **_: Any) -> None:
        self.name, self.factory = name, factory


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the stand-ins where the plugin imports from, for one test."""
    srt = "sglang.srt"
    modules: dict[str, dict[str, Any]] = {
        "sglang.kernels.ops.speculative.cache_locs": {"assign_extend_cache_locs_func": extend_locs},
        "sglang.kernels.ops.speculative.dflash": {"_prepare_dflash_draft_block_unchecked": prepare_block},
        f"{srt}.managers.scheduler": {"GenerationBatchResult": SimpleNamespace},
        f"{srt}.layers.attention.triton_backend": {"TritonAttnBackend": TritonBackend},
        f"{srt}.layers.radix_attention": {"AttentionType": AttentionKind, "RadixAttention": AttentionLayer},
        f"{srt}.mem_cache.memory_pool": {"MHATokenToKVPool": Pool, "KVWriteLoc": WriteLoc},
        f"{srt}.model_executor.cuda_graph_config": {"Backend": SimpleNamespace(DISABLED="disabled")},
        f"{srt}.model_executor.forward_batch_info": {
            "CaptureHiddenMode": HiddenMode, "ForwardBatch": SimpleNamespace, "ForwardMode": Mode,
        },
        f"{srt}.runtime_context": {"get_server_args": lambda: SimpleNamespace(speculative_algorithm="DDTREE")},
        f"{srt}.speculative.dflash_info": {"DFlashVerifyInput": VerifyInput},
        f"{srt}.speculative.dflash_info_v2": {"DFlashDraftInputV2": DraftInput},
        f"{srt}.speculative.dflash_worker_v2": {"DFlashWorkerV2": Worker},
        f"{srt}.speculative.spec_info": {"SpeculativeAlgorithm": SimpleNamespace(DFLASH="DFLASH")},
        f"{srt}.speculative.spec_registry": {"CustomSpecAlgo": CustomSpecAlgo},
    }  # fmt: skip
    for path, names in modules.items():
        parts = path.split(".")
        for n in range(1, len(parts)):
            parent = ".".join(parts[:n])
            if not getattr(sys.modules.get(parent), "toy", False):
                package = ModuleType(parent)
                package.__path__ = []
                package.toy = True  # type: ignore[attr-defined]
                monkeypatch.setitem(sys.modules, parent, package)
        module = ModuleType(path)
        module.__dict__.update(names)
        monkeypatch.setitem(sys.modules, path, module)
    for name in CALLER_MODULES:
        monkeypatch.delitem(sys.modules, f"ddtree.serving.{name}", raising=False)
    monkeypatch.setattr(Tensor, "record_stream", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: None)


def forget() -> None:
    """Modules that were imported over the stand-ins are not left for the next test."""
    for name in CALLER_MODULES:
        sys.modules.pop(f"ddtree.serving.{name}", None)
