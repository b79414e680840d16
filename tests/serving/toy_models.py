"""The toy's target and drafter for `generate`: each row of logits is computed anew from the tokens before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import toy_sglang as toy
from ddtree.commit import Commit
from ddtree.tree import DraftTree
from torch import Tensor


class ToyTarget:
    device, eos_ids = torch.device("cpu"), ()

    def __init__(self, runner: Any) -> None:
        self.runner = runner

    def encode(self, message: str) -> list[int]:
        return [int(token) for token in message.split()]

    def decode(self, tokens: Sequence[int]) -> str:
        return " ".join(map(str, tokens))

    def open(self, prompts: Sequence[Sequence[int]], *, room: int) -> ToySession:
        return ToySession(self, [list(prompt[:-1]) for prompt in prompts])

    def hidden(self, tokens: Sequence[int]) -> Tensor:
        """[n, HIDDEN] after each of the tokens."""
        return self.runner.key(torch.tensor(tokens, dtype=torch.int64), torch.arange(len(tokens))).cumsum(0)


class ToySession:
    def __init__(self, target: ToyTarget, prefixes: list[list[int]]) -> None:
        self.target, self.prefixes = target, prefixes
        self.prompt_lengths = torch.tensor([len(prefix) for prefix in prefixes])
        rows = [target.hidden(prefix) for prefix in prefixes]
        self.prompt_features = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        self.tree: DraftTree

    @property
    def prefix_len(self) -> Tensor:
        return torch.tensor([len(prefix) for prefix in self.prefixes])

    def mask(self, tree: DraftTree) -> None:
        return None

    def verify(self, tree: DraftTree, mask: Tensor | None = None) -> Tensor:
        self.tree = tree
        rows = [
            torch.stack([self.target.hidden(prefix + self._path(row, node))[-1] for node in range(tree.width)])
            for row, prefix in enumerate(self.prefixes)
        ]
        return self.target.runner.logits(torch.stack(rows)).float()

    def _path(self, row: int, node: int) -> list[int]:
        """Tokens from the root to a node."""
        above = [] if node == 0 else self._path(row, max(0, int(self.tree.parents[row, node])))
        return [*above, int(self.tree.tokens[row, node])]

    def commit(self, commit: Commit, lengths: Sequence[int] | None = None) -> Tensor:
        features = torch.zeros(*commit.path.shape, toy.HIDDEN, dtype=torch.float64)
        for row, (prefix, path) in enumerate(zip(self.prefixes, commit.path.tolist(), strict=True)):
            kept = [int(self.tree.tokens[row, node]) for node in path if node >= 0]
            features[row, : len(kept)] = self.target.hidden(prefix + kept)[len(prefix) :]
            prefix += kept
        return features

    def select(self, rows: Tensor) -> None:
        self.prefixes = [self.prefixes[row] for row in rows.tolist()]


class ToyDrafter:
    depth = toy.BLOCK - 1

    def __init__(self, runner: Any) -> None:
        self.runner = runner

    def open(self, features: Tensor, lengths: Tensor, *, room: int) -> ToyDraftSession:
        return ToyDraftSession(self.runner, [row[:n] for row, n in zip(features, lengths.tolist(), strict=True)])


class ToyDraftSession:
    def __init__(self, runner: Any, features: list[Tensor]) -> None:
        self.runner, self.features = runner, features

    def draft(self, root_tokens: Tensor, depth: int) -> Tensor:
        head = self.runner.target.head.float()
        rows = []
        for features in self.features:
            cache = features * (1 + torch.arange(len(features)) % 3)[:, None]
            rows.append(torch.sin(cache.sum(0).float() + self.runner.rows)[1 : depth + 1] @ head.T)
        return torch.stack(rows)

    def extend(self, features: Tensor, lengths: Tensor, on_host: Sequence[int] | None = None) -> None:
        new = zip(self.features, features, lengths.tolist(), strict=True)
        self.features = [torch.cat([old, more[:length]]) for old, more, length in new]

    def select(self, rows: Tensor) -> None:
        self.features = [self.features[row] for row in rows.tolist()]
