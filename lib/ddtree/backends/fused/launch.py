"""Launch the fused verify kernel, from logits or from probabilities, without waiting for the device."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

from ddtree.kernels.jit_cache import dtypes, launch
from ddtree.retrieve import RetrieveTables
from ddtree.sampling import NonFiniteLogitsError, SamplingParams
from ddtree.tree import DraftTree

MAX_INT32 = 2**31 - 1  # top_k is int32 on the device; no vocabulary is larger


@dataclass(frozen=True, slots=True)
class SamplingTensors:
    """One value a request, [bs] each, on the device of the logits."""

    temperature: Tensor  # float32, 0 for greedy
    top_k: Tensor  # int32, 0 is off
    top_p: Tensor  # float32, 1 is off
    min_p: Tensor  # float32, 0 is off

    def __post_init__(self) -> None:
        """Raises ValueError for a tensor of another dtype or shape."""
        for name, tensor, dtype in (
            ("temperature", self.temperature, torch.float32),
            ("top_k", self.top_k, torch.int32),
            ("top_p", self.top_p, torch.float32),
            ("min_p", self.min_p, torch.float32),
        ):
            if tensor.dtype != dtype or tensor.shape != self.temperature.shape[:1]:
                raise ValueError(
                    f"SamplingTensors.{name} is {tensor.dtype} {list(tensor.shape)}; it must be {dtype} "
                    f"{list(self.temperature.shape[:1])}."
                )

    @classmethod
    def from_requests(cls, requests: Sequence[SamplingParams], device: torch.device | str) -> SamplingTensors:
        """The values of `requests` on `device`; it waits for the upload, so make it once for many rounds."""
        return cls(
            temperature=torch.tensor([0.0 if p.greedy else p.temperature for p in requests], dtype=torch.float32).to(
                device
            ),
            top_k=torch.tensor([min(p.top_k, MAX_INT32) for p in requests], dtype=torch.int32).to(device),
            top_p=torch.tensor([p.top_p for p in requests], dtype=torch.float32).to(device),
            min_p=torch.tensor([p.min_p for p in requests], dtype=torch.float32).to(device),
        )


READ = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True, eq=False)
class Sizes:
    """How the kernel splits a row; powers of two except `topp_candidates`. Hashed by identity, which costs nothing."""

    lanes: int = 2048  # maxima kept of a row; at least as many as threads, and below 2**15
    lane_tokens: int = 16  # tokens that a lane reads at a time, in vectors of 16 bytes
    gather_block: int = 1024  # vectors searched for candidates at a time
    chunk: int = 128  # elements summed where the whole row is read; a warp's, so no sum crosses warps
    rows: int = 128  # chunks in a tile
    max_candidates: int = 1024  # candidates that can be sorted
    topp_candidates: int = 192  # lane maxima whose smallest bounds the candidates of top-p without top-k
    block: int = 128  # candidates ranked at a time
    step: int = 32  # against this many others at a time
    warps: int = 16


STOCK = Sizes()


def missing(device_type: str) -> str | None:
    """Why the kernel cannot run on this kind of device, or None."""
    if device_type != "cuda" and not interpreted():
        return f"the kernel runs on CUDA tensors, and these are on {device_type}"
    if importlib.util.find_spec("triton") is None:
        return f"triton is not installed; it comes with a CUDA build of torch (torch here is {torch.__version__})"
    return None


def interpreted() -> bool:
    """Whether Triton's interpreter is on, which runs kernels slowly on a CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def sample(
    tree: DraftTree,
    tables: RetrieveTables,
    logits: Tensor,
    sampling: SamplingTensors,
    coins: Tensor,
    final_coins: Tensor,
    *,
    status: Tensor | None = None,
    sizes: Sizes = STOCK,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`(predict, accept_index, accept_count, status)` from logits [bs, q, V]; see `verify_tree` for the first three.

    `status` is int32 [bs]: 0, or 1 + the first visited node whose logits are not finite, where that request's results
    end. It is written to the tensor given, which may be pinned memory of the host: whoever waits for the
    stream then reads it without a copy. Nothing here waits for the device, reads a value on the host or depends on
    one, so the call can be captured in a CUDA graph: the graph reads logits, tree, coins and parameters from the same
    tensors. A strided batch is read in place where a row is contiguous. Coins and tokens are taken to be in range; a
    token outside the vocabulary has probability 0.

    Raises ValueError for logits that are not float32, bfloat16 or float16, parameters of another batch, or a status of
    another dtype or shape.
    """
    if logits.dtype not in READ:
        raise ValueError(f"logits are {logits.dtype}; the kernel reads float32, bfloat16 and float16.")
    requests = sampling.temperature.shape[0]
    if requests != tree.batch_size:
        raise ValueError(f"sampling is for {requests} requests, the tree for {tree.batch_size}; they must agree.")
    if status is not None and (
        status.dtype != torch.int32 or status.shape != (requests,) or not status.is_contiguous()
    ):
        raise ValueError(
            f"status is {status.dtype} {list(status.shape)} of stride {list(status.stride())}; it must be torch.int32 "
            f"{[requests]}, contiguous."
        )
    return _launch(tree, tables, logits, sampling, coins, final_coins, status, sizes)


def verify(
    tree: DraftTree,
    tables: RetrieveTables,
    probs: Tensor,
    coins: Tensor,
    final_coins: Tensor,
    *,
    sizes: Sizes = STOCK,
) -> tuple[Tensor, Tensor, Tensor]:
    """`(predict, accept_index, accept_count)` from probabilities float32 [bs, q, V]; see `verify_tree`."""
    return _launch(tree, tables, probs, None, coins, final_coins, None, sizes)[:3]


def _launch(
    tree: DraftTree,
    tables: RetrieveTables,
    rows: Tensor,
    sampling: SamplingTensors | None,
    coins: Tensor,
    final_coins: Tensor,
    status: Tensor | None,
    sizes: Sizes,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    bs, q, vocab = rows.shape
    device = rows.device
    predict = torch.empty(bs * q, dtype=torch.int32, device=device)
    accept_index = torch.empty(bs, tree.max_depth + 1, dtype=torch.int32, device=device)
    accept_count = torch.empty(bs, dtype=torch.int32, device=device)
    if status is None:
        status = torch.empty(bs, dtype=torch.int32, device=device)
    if bs == 0:
        return predict, accept_index, accept_count, status
    if rows.stride(2) != 1:
        rows = rows.contiguous()
    layout = _layout(sizes, vocab, rows.element_size())
    per_request = (
        (final_coins,) * 4  # not read
        if sampling is None
        else (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)
    )
    given = (tree.tokens, tables.next_token, tables.next_sibling, coins, final_coins, *per_request)
    read = tuple(part if part.is_contiguous() else part.contiguous() for part in given)
    strides = rows.stride()[:2]
    arguments = (
        rows,
        *strides,
        *read,
        predict,
        accept_index,
        accept_count,
        status,
        torch.empty(bs * (layout.words + q), dtype=torch.int64, device=device),
        vocab,
        q,
        tree.max_depth,
        sampling is None,
        *layout.constants,
    )
    aligned = rows.data_ptr() % 16 == 0
    key = ("fused_verify", rows.dtype, aligned, strides, vocab, sampling is None, dtypes(read), sizes)
    launch(_kernel(), (bs,), arguments, device, key, warps=sizes.warps)
    return predict, accept_index, accept_count, status


@dataclass(frozen=True, slots=True)
class _Layout:
    """What `Sizes` come to for one vocabulary."""

    constants: tuple[int, ...]  # the kernel's, in its order, from LANES on
    words: int  # int64 of workspace that a request needs, without its list of rejected tokens


@cache
def _layout(sizes: Sizes, vocab: int, element_size: int) -> _Layout:
    chunks = _power_of_2_from(-(-vocab // sizes.chunk))
    sums = max(chunks, sizes.max_candidates)
    vector = 16 // element_size
    constants = (
        sizes.lanes,
        vector,
        sizes.lane_tokens // vector,
        sizes.gather_block,
        sizes.chunk,
        sizes.rows,
        chunks,
        sizes.max_candidates,
        sums,
        sizes.topp_candidates,
        sizes.block,
        sizes.step,
    )
    return _Layout(constants, sums + 2 * sizes.max_candidates + sizes.lanes)


def _power_of_2_from(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return 1 << (number - 1).bit_length()


@cache
def _kernel() -> Any:
    """Imported on first use: a machine without a GPU need not have Triton."""
    from ddtree.backends.fused.verify_kernel import fused_verify

    return fused_verify


def sample_requests(
    tree: DraftTree,
    tables: RetrieveTables,
    logits: Tensor,
    requests: Sequence[SamplingParams],
    coins: Tensor,
    final_coins: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """`sample` for requests whose parameters are on the host: uploads them and waits once, to report bad logits.

    Under CUDA graph capture it does not wait; call it once before, since the first call compiles and uploads.
    Raises NonFiniteLogitsError, outside of capture.
    """
    rows = logits if logits.dtype in READ else logits.float()
    sampling = uploaded(requests, logits.device)
    if _capturing(logits.device):
        _IN_GRAPHS[id(sampling)] = sampling
        return sample(tree, tables, rows, sampling, coins, final_coins)[:3]
    # The kernel writes the status where the host can read it, so nothing has to be copied.
    status = torch.empty(tree.batch_size, dtype=torch.int32, pin_memory=logits.is_cuda)
    try:
        result = sample(tree, tables, rows, sampling, coins, final_coins, status=status)[:3]
    finally:  # torch does not know that the kernel writes to this memory, and would give it to another tensor
        if logits.is_cuda:
            torch.cuda.current_stream(logits.device).synchronize()
    codes = status.tolist()
    if any(codes):
        raise NonFiniteLogitsError.at(*next((b, code - 1) for b, code in enumerate(codes) if code))
    return result


def _capturing(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


_IN_GRAPHS: dict[int, SamplingTensors] = {}  # by id, never evicted: a CUDA graph goes on reading its parameters


def uploaded(requests: Sequence[SamplingParams], device: torch.device) -> SamplingTensors:
    """The parameters on `device`, cached by value; a batch that shares one object is hashed once."""
    if requests and all(params is requests[0] for params in requests):
        return _uploaded_shared(requests[0], len(requests), device)
    return _uploaded_each(tuple(requests), device)


@lru_cache(maxsize=64)
def _uploaded_shared(params: SamplingParams, requests: int, device: torch.device) -> SamplingTensors:
    return SamplingTensors.from_requests([params] * requests, device)


@lru_cache(maxsize=64)
def _uploaded_each(requests: tuple[SamplingParams, ...], device: torch.device) -> SamplingTensors:
    return SamplingTensors.from_requests(requests, device)
