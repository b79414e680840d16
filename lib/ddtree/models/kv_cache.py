"""Store the KV of a batch in preallocated rows: each row's committed tokens, then those of the running pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import Cache


class RowCache(Cache):
    """A transformers cache whose rows grow at their own pace.

    A pass writes its n new keys after each row's committed ones: its own attention reads them, and the next pass
    overwrites them unless `advance` or `keep` commits them. `DynamicCache.crop`, whose meaning changed between
    releases, is not needed. The caller's mask must hide what lies beyond a row's own keys; it is zero or stale, never
    NaN.
    """

    def __init__(self, layers: int, batch_size: int, capacity: int, device: torch.device) -> None:
        super().__init__(layers=[])
        self._layer_count = layers
        self._capacity = capacity
        self._store: Tensor | None = None  # [layers, 2, bs, heads, capacity, head_dim], shaped by the first pass
        self.lengths = torch.zeros(batch_size, dtype=torch.int64, device=device)
        self._host_lengths = [0] * batch_size

    @property
    def longest(self) -> int:
        """Committed tokens of the longest row, known on the host."""
        return max(self._host_lengths)

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write new keys and values [bs, heads, n, head_dim] after each row's committed ones; return the layer's.

        Raises ValueError if they do not fit.
        """
        bs, heads, n, head_dim = key_states.shape
        if self.longest + n > self._capacity:
            raise ValueError(
                f"the cache has room for {self._capacity} tokens a row; this pass would need {self.longest + n}."
            )
        if self._store is None:
            shape = (self._layer_count, 2, bs, heads, self._capacity, head_dim)
            self._store = key_states.new_zeros(shape)
        layer = self._store[layer_idx]
        if bs == 1:
            start = self._host_lengths[0]
            layer[0, :, :, start : start + n] = key_states
            layer[1, :, :, start : start + n] = value_states
        else:
            batch = torch.arange(bs, device=key_states.device)[:, None]
            slots = self.lengths[:, None] + torch.arange(n, device=key_states.device)
            layer[0][batch, :, slots] = key_states.transpose(1, 2)
            layer[1][batch, :, slots] = value_states.transpose(1, 2)
        end = self.longest + n
        return layer[0, :, :, :end], layer[1, :, :, :end]

    def advance(self, counts: Tensor, on_host: Sequence[int] | None = None) -> None:
        """Commit the first `counts[b]` (int64 [bs]) of the rows the last pass appended.

        `on_host` holds the same numbers; without it the device is waited for.
        """
        grown = counts.tolist() if on_host is None else on_host
        self.lengths = self.lengths + counts
        self._host_lengths = [length + more for length, more in zip(self._host_lengths, grown, strict=True)]

    def keep(self, path: Tensor, counts: Tensor, on_host: Sequence[int] | None = None) -> None:
        """Commit the appended rows of `path` (int64 [bs, m], -1 padded, `counts[b]` real), gathered in place.

        The gather materialises before the write, so a slot may be both source and destination. `on_host` as in
        `advance`.
        """
        kept = counts.tolist() if on_host is None else on_host
        if self._store is not None:
            path = path[:, : max(kept)]  # padding may reach beyond the pass, and beyond the room
            steps = torch.arange(path.shape[1], device=path.device)
            source = torch.where(path < 0, steps, path)  # padding copies a row onto itself, to be forgotten
            if path.shape[0] == 1:
                start, m = self._host_lengths[0], kept[0]
                rows = self._store[:, :, 0, :, start:]
                rows[..., :m, :] = rows.index_select(3, source[0, :m])
            else:
                batch = torch.arange(path.shape[0], device=path.device)[:, None]
                store = self._store.permute(2, 4, 0, 1, 3, 5)  # a view [bs, capacity, layers, 2, heads, head_dim]
                moved = store[batch, self.lengths[:, None] + source]
                steps = torch.where(path < 0, source, steps)
                store[batch, self.lengths[:, None] + steps] = moved
        self.advance(counts, kept)

    def crop(self, tokens_to_remove: int) -> None:
        """Always raises: transformers' own `crop` would find no layers here and silently remove nothing."""
        raise NotImplementedError(
            f"crop({tokens_to_remove}) was called on a RowCache, which drops what `keep` does not commit; "
            "transformers' crop has meant both a length to keep and a number to remove."
        )

    def select(self, rows: Tensor) -> None:
        """Keep only these batch rows (int64 [n])."""
        if self._store is not None:
            self._store = self._store.index_select(2, rows)
        self.lengths = self.lengths.index_select(0, rows)
        self._host_lengths = self.lengths.tolist()

    def row(self, b: int) -> Tensor:
        """Committed KV of row b: [layers, 2, heads, lengths[b], head_dim]."""
        if self._store is None:
            raise ValueError("the cache is empty: no pass has written to it yet.")
        return self._store[:, :, b, :, : self._host_lengths[b]]

    def appended(self, b: int, count: int) -> Tensor:
        """A copy of the first `count` rows the last pass appended to row b: [layers, 2, heads, count, head_dim]."""
        if self._store is None:
            raise ValueError("the cache is empty: no pass has written to it yet.")
        start = self._host_lengths[b]
        return self._store[:, :, b, :, start : start + count].clone()

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.longest

    def get_query_offset(self, layer_idx: int = 0) -> int:
        return self.longest

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        return self.longest + query_length, 0
