"""Explain one round as tables: top-k tokens, the accepted path, the verify step by step, and what is committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from torch import Tensor

from ddtree.commit import Commit
from ddtree.retrieve import RetrieveTables
from ddtree.sampling import SamplingParams
from ddtree.tree import DraftTree
from ddtree.verify import VerifyResult
from ddtree.workbook.theme import plotly_text
from ddtree.workbook.tree.plots import draw_tree
from ddtree.workbook.tree.snapshot import Scene

WALK_COLUMNS = ["node", "coin", "child", "token", "probability", "running_sum", "decision", "residual"]


def buffer_table(buffers: Mapping[str, Tensor]) -> pd.DataFrame:
    """Name, shape, dtype and first entries of each buffer of a verify call."""
    return pd.DataFrame(
        {
            "buffer": list(buffers),
            "shape": [str(list(t.shape)) for t in buffers.values()],
            "dtype": [str(t.dtype).removeprefix("torch.") for t in buffers.values()],
            "first entries": [str([round(x, 3) for x in t.flatten()[:5].tolist()]) for t in buffers.values()],
        }
    )


def walk_table(
    tree: DraftTree,
    tables: RetrieveTables,
    probs: Tensor,
    coins: Tensor,
    final_coin: float,
    labels: Sequence[str],
    row: int = 0,
) -> pd.DataFrame:
    """Every comparison of one request's walk, re-derived from probabilities [bs, q, V], one row each.

    Columns node, coin, child, token, probability, running_sum, decision, residual: the probability still open at the
    node after this comparison. The last row is the draw of the final token.
    """
    steps: list[dict[str, object]] = []
    node = 0
    while True:
        coin, running_sum, accepted = coins[row, node].item(), np.float32(0), None
        child = int(tables.next_token[row, node])
        while child != -1 and accepted is None:
            probability = np.float32(probs[row, node, tree.tokens[row, child]].item())
            running_sum = np.float32(running_sum + probability)
            accepted = child if probability > 0 and coin < running_sum else None
            steps.append(
                {
                    "node": node,
                    "coin": coin,
                    "child": child,
                    "token": labels[child],
                    "probability": float(probability),
                    "running_sum": float(running_sum),
                    "decision": "reject" if accepted is None else "accept",
                    "residual": max(0.0, 1.0 - float(running_sum)),
                }
            )
            child = int(tables.next_sibling[row, child])
        if accepted is None:
            break
        node = accepted
    steps.append(
        {
            "node": node,
            "coin": final_coin,
            "decision": "draw the final token",
            "residual": max(0.0, 1.0 - float(running_sum)),
        }
    )
    return pd.DataFrame(steps, columns=WALK_COLUMNS).astype({"child": "Int64"})  # all of them, also for a root alone


def commit_table(
    tree: DraftTree, result: VerifyResult, commit: Commit, prefix_len: Tensor, labels: Sequence[Sequence[str]]
) -> pd.DataFrame:
    """One row per entry of the accept index: flat index, request, node, and the KV and hidden rows it keeps.

    The verify pass wrote node i's KV at row prefix + i; the commit moves it to prefix + depth. The drafter reads the
    hidden row of the same node.
    """
    q = tree.width
    rows = []
    for b in range(tree.batch_size):
        prefix = int(prefix_len[b])
        for depth in range(int(commit.lengths[b])):
            flat, node = int(result.accept_index[b, depth]), int(commit.path[b, depth])
            rows.append(
                {
                    "request": b,
                    "flat_index": flat,
                    "minus_b_q": b * q,
                    "node": node,
                    "token": labels[b][node],
                    "next_token": int(result.predict[flat]),
                    "kv_row_written": prefix + node,
                    "kv_row_kept": prefix + depth,
                    "hidden_row": node,
                }
            )
    return pd.DataFrame(rows)


def result_table(result: VerifyResult) -> pd.DataFrame:
    """What the backend wrote, one row per request; predict is shown where it was written."""
    predict = result.predict.reshape(result.accept_index.shape[0], -1)
    return pd.DataFrame(
        {
            "request": range(len(predict)),
            "accept_count": result.accept_count.tolist(),
            "accept_index": [str(row) for row in result.accept_index.tolist()],
            "predict": [str({node: token for node, token in enumerate(row) if token >= 0}) for row in predict.tolist()],
        }
    )


def draft_table(scene: Scene, *, favourites: int = 4) -> pd.DataFrame:
    """The likeliest tokens at each position with their draft probabilities; positions know nothing of each other."""
    probs, tokens = scene.draft_logits[0].float().softmax(dim=-1).topk(favourites, dim=-1)
    decode = scene.pair.target.tokenizer.decode
    cells = [
        [f"{decode([token])!r} {prob:.2f}" for token, prob in zip(*row, strict=True)]
        for row in zip(tokens.tolist(), probs.tolist(), strict=True)
    ]
    ranks = [f"rank {rank}" for rank in range(favourites)]
    return pd.DataFrame(cells, columns=ranks, index=pd.RangeIndex(1, len(cells) + 1, name="depth"))


def draw_round(
    scene: Scene,
    *,
    budget: int,
    topk_cap: int,
    temperature: float,
    draft_temperature: float | Literal["match"],
) -> go.Figure:
    """The tree built, scored and walked with these settings; the accepted path in colour."""
    seen = scene.play(
        budget=budget,
        topk_cap=topk_cap,
        sampling=SamplingParams(temperature=temperature),
        draft_temperature=draft_temperature,
    )
    labels = scene.labels(seen.tree)
    accepted = int(seen.result.accept_count[0])
    final = plotly_text(repr(scene.pair.target.tokenizer.decode([int(seen.commit.next_root[0])])))
    drafts = "1 draft" if accepted == 1 else f"{accepted} drafts"
    title = f"{int(seen.tree.sizes[0]) - 1} drafts offered, {drafts} accepted at T = {temperature:g}, then {final}"
    return draw_tree(seen.tree, labels=labels, path=seen.commit.path[0].tolist(), title=title)
