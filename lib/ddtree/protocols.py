"""What the decode loop needs of a target, a drafter and a budget policy, so that it knows no models and no engine."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import torch
from torch import Tensor

from ddtree.commit import Commit
from ddtree.tree import DraftTree


class TargetModel(Protocol):
    """Scores draft trees; holds the tokenizer."""

    @property
    def device(self) -> torch.device: ...
    @property
    def eos_ids(self) -> Collection[int]: ...
    def encode(self, message: str) -> list[int]: ...
    def decode(self, tokens: Sequence[int]) -> str: ...
    def open(self, prompts: Sequence[Sequence[int]], *, room: int) -> TargetSession:
        """Prefill all but each prompt's last token, with room for this many more tokens."""


class TargetSession(Protocol):
    """A batch in progress: the KV cache of its committed prefixes."""

    prompt_features: Tensor  # [bs, longest prompt - 1, features]
    prompt_lengths: Tensor  # int64 [bs]

    @property
    def prefix_len(self) -> Tensor:
        """int64 [bs], tokens with KV."""

    def mask(self, tree: DraftTree) -> Tensor | None:
        """The tree's attention mask, or None where the verify makes its own."""

    def verify(self, tree: DraftTree, mask: Tensor | None = None) -> Tensor:
        """Logits [bs, q, V] of every node in one pass."""

    def commit(self, commit: Commit, lengths: Sequence[int] | None = None) -> Tensor:
        """Keep the KV rows of the accepted path and return its features; `lengths` is `commit.lengths` on the host."""

    def select(self, rows: Tensor) -> None:
        """Keep only these rows of the batch, in this order."""


class DraftModel(Protocol):
    """Proposes a block of tokens in one pass."""

    @property
    def depth(self) -> int:
        """Positions drafted in one pass."""

    def open(self, features: Tensor, lengths: Tensor, *, room: int) -> DraftSession: ...


class DraftSession(Protocol):
    """The drafter's side of a batch in progress."""

    def draft(self, root_tokens: Tensor, depth: int) -> Tensor:
        """Logits [bs, depth, V] of the positions after the roots."""

    def extend(self, features: Tensor, lengths: Tensor, on_host: Sequence[int] | None = None) -> None:
        """Add the features of the committed tokens; `on_host` is `lengths` on the host."""

    def select(self, rows: Tensor) -> None: ...


class BudgetPolicy(Protocol):
    """Chooses the budget of each request's tree round by round, as `AutoBudget` does."""

    @property
    def largest(self) -> int: ...
    def start(self, requests: int, device: torch.device | str = "cpu") -> BudgetState: ...


class BudgetState(Protocol):
    """The decisions of a batch in progress."""

    @property
    def all_back_off(self) -> bool:
        """No row wants a draft in this round."""

    def cut(self, tree: DraftTree) -> DraftTree:
        """The tree with only the nodes that are worth verifying."""

    def update(self, tree: DraftTree, accepted: Tensor, sizes: Sequence[int], emitted: Sequence[int]) -> None: ...
    def select(self, rows: Tensor, on_host: Sequence[int]) -> None: ...
