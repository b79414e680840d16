"""The sampling verify told step by step, and its flat result mapped back, as tables a reader can follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from torch import Tensor

from ddtree.commit import Commit
from ddtree.draft_tree import DraftTree
from ddtree.retrieve import RetrieveTables
from ddtree.verify import VerifyResult

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
