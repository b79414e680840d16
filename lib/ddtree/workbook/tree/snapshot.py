"""Stops a live decode before a round and keeps both models' state, so that any tree can be tried on it.

Rounds run on a snapshot leave it unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ddtree.commit import Commit, plan_commit
from ddtree.decode import draft_temperature_of, generate
from ddtree.models.target import TargetSession
from ddtree.models.zoo import Pair
from ddtree.retrieve import RetrieveTables, compile_retrieve
from ddtree.sampling import SamplingParams, step_coins
from ddtree.tree import DraftTree, build_tree
from ddtree.verify import VerifyResult, sample_tree

LARGEST_BUDGET = 1024  # KV rows reserved after the prefix, so that a slider may ask for this many nodes


@dataclass(frozen=True, slots=True)
class Round:
    """One round on a snapshot, decided but not committed."""

    tree: DraftTree
    tables: RetrieveTables
    logits: Tensor  # [bs, q, V]
    coins: Tensor  # float32 [bs, q]
    final_coins: Tensor  # float32 [bs]
    result: VerifyResult
    commit: Commit


@dataclass(frozen=True, slots=True)
class DecodeSnapshot:
    """The state before a round, for a batch of rows with equal text and different seeds."""

    pair: Pair
    tokens: list[int]  # everything committed, the root last
    session: TargetSession
    draft_logits: Tensor  # [bs, depth, V]
    seeds: list[int]

    @torch.inference_mode()
    def run_round(
        self,
        *,
        budget: int,
        topk_cap: int,
        sampling: SamplingParams,
        draft_temperature: float | Literal["match"] = 1.0,
        backend: str = "auto",
    ) -> Round:
        """Build a tree, score it with the target, verify it and plan the commit."""
        rows, device = len(self.seeds), self.draft_logits.device
        tree = build_tree(
            self.draft_logits,
            torch.full((rows,), self.tokens[-1], device=device),
            budget=budget,
            topk_cap=topk_cap,
            draft_temperature=draft_temperature_of(draft_temperature, sampling),
        )
        tables = compile_retrieve(tree)
        coins, final_coins = step_coins(self.seeds, self.session.prefix_len.tolist(), tree.width, device=device)
        logits = self.session.verify(tree)
        result = sample_tree(tree, tables, logits, sampling, coins, final_coins, backend=backend)
        commit = plan_commit(tree, result, self.session.prefix_len)
        return Round(tree, tables, logits, coins, final_coins, result, commit)

    def labels(self, tree: DraftTree, row: int = 0) -> list[str]:
        """The text of each node's token."""
        return [self.pair.target.tokenizer.decode([token]) for token in tree.tokens[row, : tree.sizes[row]].tolist()]

    @property
    def text(self) -> str:
        """Everything committed, including special tokens."""
        return self.pair.target.tokenizer.decode(self.tokens)


@torch.inference_mode()
def snapshot_at(pair: Pair, prompt: str, *, skip_tokens: int, seeds: Sequence[int] = (0,)) -> DecodeSnapshot:
    """Answer `prompt` greedily for `skip_tokens` tokens, then stop before the next round; one row for each seed."""
    tokens = pair.target.encode(prompt)
    if skip_tokens:
        greedy = SamplingParams(temperature=0.0)
        (answer,) = generate(
            pair.target, None, [tokens], strategy="autoregressive", sampling=greedy, max_new_tokens=skip_tokens
        )
        tokens = tokens + [token for token in answer.tokens if token not in pair.target.eos_ids]
    session = pair.target.open([tokens] * len(seeds), room=LARGEST_BUDGET + 1)
    drafter = pair.drafter.open(session.prompt_features, session.prompt_lengths, room=1)
    roots = torch.full((len(seeds),), tokens[-1], device=pair.target.device)
    return DecodeSnapshot(pair, tokens, session, drafter.draft(roots, pair.drafter.depth), list(seeds))
