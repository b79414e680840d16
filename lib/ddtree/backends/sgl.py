"""Call the stock op of sglang-kernel, `tree_speculative_sampling_target_only`, with its edge cases corrected."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ddtree.retrieve import RetrieveTables
from ddtree.sampling import SamplingParams, target_probs
from ddtree.tree import DraftTree

REQUIRED = "distribution sglang-kernel 0.4.5, built for torch 2.11"
SAME_MODULE = ("sgl-kernel", "sglang-kernel")  # both install sgl_kernel
OFFSET_LIMIT = 2**32  # the op computes row offsets in uint32


def missing(device_type: str) -> str | None:
    """Why the op cannot run on this kind of device, or None."""
    if device_type != "cuda":
        return f"the op runs on CUDA tensors, and these are on {device_type}"
    if importlib.util.find_spec("sgl_kernel") is None:
        return f"sgl_kernel is not installed ({REQUIRED}; torch here is {torch.__version__})"
    if all(_is_installed(name) for name in SAME_MODULE):
        both = " and ".join(SAME_MODULE)
        return f"{both} are both installed and overwrite each other; uninstall both, then install {REQUIRED}"
    return None


def _is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def verify(
    tree: DraftTree, tables: RetrieveTables, probs: Tensor, coins: Tensor, final_coins: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """`(predict, accept_index, accept_count)` from the op; see `verify_tree` for shapes.

    The op differs from the contract in three edge cases, corrected here: it accepts on `coin <= sum` (so a coin of
    0 takes a child of probability 0), emits id V-1 when the residual is empty, even if that child was rejected a
    moment before, and writes into draft_probs.

    Raises ValueError when bs * q * V reaches 2^32, where its offsets would wrap.
    """
    import sgl_kernel  # lazily: without a GPU the import fails with a misleading message

    bs, q, vocab = probs.shape
    if bs * q * vocab >= OFFSET_LIMIT:
        raise ValueError(
            f"bs * q * V is {bs * q * vocab}; the op's offsets are uint32, so it must stay below {OFFSET_LIMIT}. "
            "Use a smaller batch or budget."
        )
    device = probs.device
    predict = torch.full((bs * q,), -1, dtype=torch.int32, device=device)
    accept_index = torch.full((bs, tree.max_depth + 1), -1, dtype=torch.int32, device=device)
    accept_count = torch.zeros(bs, dtype=torch.int32, device=device)
    if bs == 0:
        return predict, accept_index, accept_count
    probs = probs.contiguous()
    rejected = torch.zeros_like(probs)  # the op marks each rejected child here, with its probability
    sgl_kernel.tree_speculative_sampling_target_only(
        predicts=predict,
        accept_index=accept_index,
        accept_token_num=accept_count,
        candidates=tree.tokens.contiguous(),
        retrive_index=tables.index.contiguous(),
        retrive_next_token=tables.next_token.contiguous(),
        retrive_next_sibling=tables.next_sibling.contiguous(),
        uniform_samples=_strictly_above(coins).contiguous(),
        uniform_samples_for_final_sampling=final_coins.contiguous(),
        target_probs=probs,
        draft_probs=rejected,
        threshold_single=1.0,
        threshold_acc=1.0,
    )
    return _with_valid_final_tokens(predict, accept_index, accept_count, probs, rejected, final_coins)


def sample(
    tree: DraftTree,
    tables: RetrieveTables,
    logits: Tensor,
    sampling: Sequence[SamplingParams],
    coins: Tensor,
    final_coins: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """`verify` from logits [bs, q, V]: the op reads the probabilities of every row."""
    probs = target_probs(
        logits,
        temperature=[p.temperature for p in sampling],
        top_k=[p.top_k for p in sampling],
        top_p=[p.top_p for p in sampling],
        min_p=[p.min_p for p in sampling],
    )
    return verify(tree, tables, probs, coins, final_coins)


def _strictly_above(coins: Tensor) -> Tensor:
    """The next float32 up: the op's `coin <= sum` then reads `coin < sum`."""
    # At least the smallest normal number, since a GPU may flush what lies below it to 0.
    return torch.nextafter(coins, torch.full_like(coins, math.inf)).clamp(min=torch.finfo(torch.float32).tiny)


def _with_valid_final_tokens(
    predict: Tensor, accept_index: Tensor, accept_count: Tensor, probs: Tensor, rejected: Tensor, final_coins: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Where rounding leaves no mass, the op emits V-1, even at probability 0: sample as the reference does instead."""
    vocab = probs.shape[-1]
    last = accept_index.gather(1, accept_count[:, None].long())[:, 0].long()
    row = probs.reshape(-1, vocab)[last].double()  # [bs, V]
    rest = row.masked_fill(rejected.reshape(-1, vocab)[last] > 0, 0.0)
    emitted = predict[last].long()
    possible = rest.gather(1, emitted[:, None])[:, 0] > 0
    cdf = torch.where(rest.sum(dim=1, keepdim=True) > 0, rest, row).cumsum(dim=1)
    drawn = torch.searchsorted(cdf, cdf[:, -1:] * final_coins.double()[:, None], right=True)[:, 0]
    predict[last] = torch.where(possible, emitted, drawn).int()
    return predict, accept_index, accept_count
