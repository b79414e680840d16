"""Run the DFlash drafter: one pass over a block of mask tokens, with the KV of its context kept between rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ddtree.models.kv_cache import RowCache
from ddtree.models.target import Target


class Drafter:
    """A `dflash.model.DFlashDraftModel` with the embedding and the output head of its target, which it shares.

    Raises ValueError for a model without a mask token, or with one that is not an id of the target.
    """

    def __init__(self, model: Any, target: Target) -> None:
        if model.mask_token_id is None:
            raise ValueError("the drafter's config has no dflash_config.mask_token_id; a block is filled with it.")
        ids = target.embedding.num_embeddings
        if not 0 <= model.mask_token_id < ids:
            raise ValueError(f"the drafter's mask_token_id is {model.mask_token_id}; its target has ids 0..{ids - 1}.")
        self.model = model.eval()
        self.embedding = target.embedding
        self.output_head = target.output_head

    @property
    def depth(self) -> int:
        """Positions drafted in one pass: block size - 1, since slot 0 holds the committed token."""
        return self.model.block_size - 1

    def open(self, features: Tensor, lengths: Tensor, *, room: int) -> DrafterSession:
        """Start from the prompt's features [bs, L, F], of which `lengths[b]` are real."""
        return DrafterSession(self, features, lengths, room)


class DrafterSession:
    """One batch in progress. The context KV covers each row's committed tokens except those still pending."""

    def __init__(self, drafter: Drafter, features: Tensor, lengths: Tensor, room: int) -> None:
        self._drafter = drafter
        # A pass appends the new context rows of the fastest row, at most a block of them, and then a block.
        capacity = features.shape[1] + room + 2 * drafter.model.block_size
        layers = drafter.model.config.num_hidden_layers
        self.cache = RowCache(layers, features.shape[0], capacity, features.device)
        self._pending = features
        self._pending_lengths = lengths
        self._pending_on_host = lengths.tolist()

    @torch.inference_mode()
    def draft(self, root_tokens: Tensor, depth: int) -> Tensor:
        """Logits [bs, depth, V] of the positions after `root_tokens` (int64 [bs]); only new context rows are projected.

        Raises ValueError for a depth of a block or more.
        """
        drafter, model = self._drafter, self._drafter.model
        block_size = model.block_size
        if not 0 <= depth < block_size:
            raise ValueError(f"depth is {depth}; a drafter of block size {block_size} drafts at most {block_size - 1}.")
        bs, n, _ = self._pending.shape
        block = root_tokens[:, None].repeat(1, block_size)
        block[:, 1:] = model.mask_token_id
        start = self.cache.lengths[:, None]
        steps = torch.arange(max(n, block_size), device=block.device)
        after = start + self._pending_lengths[:, None]
        hidden = model(
            target_hidden=self._pending,
            noise_embedding=drafter.embedding(block),
            position_ids=torch.cat([start + steps[:n], after + steps[:block_size]], dim=1),
            attention_mask=self._mask(n) if bs > 1 else None,
            past_key_values=self.cache,
            use_cache=True,
        )
        self.cache.advance(self._pending_lengths, self._pending_on_host)
        self._pending = self._pending[:, :0]
        self._pending_lengths = torch.zeros_like(self._pending_lengths)
        self._pending_on_host = [0] * bs
        return model.compute_logits(hidden[:, 1 : depth + 1], drafter.output_head)

    def extend(self, features: Tensor, lengths: Tensor, on_host: Sequence[int] | None = None) -> None:
        """Add the context rows of the tokens just committed: features [bs, m, F], `lengths[b]` of them real.

        They stay pending until the next pass, after the rows of rounds that drafted nothing. `on_host` holds the same
        numbers as `lengths`; without it the device is waited for.
        """
        new_on_host = lengths.tolist() if on_host is None else list(on_host)
        features = features[:, : max(new_on_host)]
        if any(self._pending_on_host):
            features = self._append_to_pending(features)
        self._pending_on_host = [old + new for old, new in zip(self._pending_on_host, new_on_host, strict=True)]
        self._pending = features[:, : max(self._pending_on_host)]
        self._pending_lengths = self._pending_lengths + lengths

    def select(self, rows: Tensor) -> None:
        """Keep only these batch rows (int64 [n])."""
        self.cache.select(rows)
        self._pending_lengths = self._pending_lengths.index_select(0, rows)
        # Cut to the longest row kept: a batch of one runs without a mask, so it must have no padding.
        self._pending_on_host = self._pending_lengths.tolist()
        longest = max(self._pending_on_host, default=0)  # no row is left once every request is done
        self._pending = self._pending.index_select(0, rows)[:, :longest]

    def _append_to_pending(self, features: Tensor) -> Tensor:
        """Each row's pending features with these [bs, m, F] directly after them, [bs, pending + m, F]."""
        bs, m, _ = features.shape
        joined = torch.nn.functional.pad(self._pending, (0, 0, 0, m))
        slots = self._pending_lengths[:, None] + torch.arange(m, device=features.device)
        joined[torch.arange(bs, device=features.device)[:, None], slots] = features
        return joined

    def _mask(self, n: int) -> Tensor:
        """Additive [bs, 1, block, keys]: a row attends to its context, its real new rows (of n) and the block."""
        block_size = self._drafter.model.block_size
        end = self.cache.longest + n + block_size
        local = torch.arange(end, device=self.cache.lengths.device)[None, :] - self.cache.lengths[:, None]
        is_context = local < self._pending_lengths[:, None]
        is_block = (local >= n) & (local < n + block_size)
        dtype = self._drafter.model.dtype
        mask = torch.zeros(local.shape, dtype=dtype, device=local.device)
        mask.masked_fill_(~(is_context | is_block), torch.finfo(dtype).min)
        return mask[:, None, None, :].expand(-1, 1, block_size, -1)
