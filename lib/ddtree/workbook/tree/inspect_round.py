"""Explains one round as tables: top-k tokens, buffers, the comparisons of the verify, and what is committed."""

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
from ddtree.workbook.tree.snapshot import DecodeSnapshot

WALK_COLUMNS = ["node", "coin", "child", "token", "probability", "running_sum", "decision", "residual"]


def draft_table(snapshot: DecodeSnapshot, *, top: int = 4) -> pd.DataFrame:
    """The `top` likeliest tokens at each position with their draft probabilities, which ignore the other positions."""
    probs, tokens = snapshot.draft_logits[0].float().softmax(dim=-1).topk(top, dim=-1)
    decode = snapshot.pair.target.tokenizer.decode
    cells = [
        [f"{decode([token])!r} {prob:.2f}" for token, prob in zip(*row, strict=True)]
        for row in zip(tokens.tolist(), probs.tolist(), strict=True)
    ]
    ranks = [f"rank {rank}" for rank in range(top)]
    return pd.DataFrame(cells, columns=ranks, index=pd.RangeIndex(1, len(cells) + 1, name="depth"))


def draw_round(
    snapshot: DecodeSnapshot,
    *,
    budget: int,
    topk_cap: int,
    temperature: float,
    draft_temperature: float | Literal["match"],
) -> go.Figure:
    """The tree built, scored and verified with these settings, its accepted path in colour."""
    seen = snapshot.run_round(
        budget=budget,
        topk_cap=topk_cap,
        sampling=SamplingParams(temperature=temperature),
        draft_temperature=draft_temperature,
    )
    accepted = int(seen.result.accept_count[0])
    final = plotly_text(repr(snapshot.pair.target.tokenizer.decode([int(seen.commit.next_root[0])])))
    drafts = "1 draft" if accepted == 1 else f"{accepted} drafts"
    title = f"{int(seen.tree.sizes[0]) - 1} drafts offered, {drafts} accepted at T = {temperature:g}, then {final}"
    return draw_tree(seen.tree, labels=snapshot.labels(seen.tree), path=seen.commit.path[0].tolist(), title=title)


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
    """Every comparison of one request's walk, derived again from `probs` [bs, q, V], one row each.

    Columns WALK_COLUMNS; residual is the probability of the node's row not yet compared. The last row is the draw of
    the final token.
    """
    first, following = tables.next_token[row].tolist(), tables.next_sibling[row].tolist()
    rows: list[tuple[object, ...]] = []
    node, child, running_sum, left = 0, first[0], np.float32(0), 1.0
    while child != -1:
        coin, probability = coins[row, node].item(), np.float32(probs[row, node, tree.tokens[row, child]].item())
        running_sum = np.float32(running_sum + probability)
        accept = probability > 0 and coin < running_sum
        left = max(0.0, 1.0 - float(running_sum))
        numbers = float(probability), float(running_sum), "accept" if accept else "reject", left
        rows.append((node, coin, child, labels[child], *numbers))
        if accept:
            node, child, running_sum, left = child, first[child], np.float32(0), 1.0
        else:
            child = following[child]
    rows.append((node, final_coin, None, None, None, None, "draw the final token", left))
    return pd.DataFrame(rows, columns=WALK_COLUMNS).astype({"child": "Int64"})


def result_table(result: VerifyResult) -> pd.DataFrame:
    """The backend's output, one row per request; predict is shown where it was written."""
    predict = result.predict.reshape(result.accept_index.shape[0], -1)
    return pd.DataFrame(
        {
            "request": range(len(predict)),
            "accept_count": result.accept_count.tolist(),
            "accept_index": [str(row) for row in result.accept_index.tolist()],
            "predict": [str({node: token for node, token in enumerate(row) if token >= 0}) for row in predict.tolist()],
        }
    )


def commit_table(
    tree: DraftTree, result: VerifyResult, commit: Commit, prefix_len: Tensor, labels: Sequence[Sequence[str]]
) -> pd.DataFrame:
    """One row per entry of the accept index: flat index, request, node, and the KV and hidden rows it keeps.

    The verify pass wrote node i's KV at row prefix + i; the commit moves it to prefix + depth. The drafter reads the
    hidden row of the same node.
    """
    request, depth = (commit.path >= 0).nonzero(as_tuple=True)
    flat, node, prefix = result.accept_index[request, depth], commit.path[request, depth], prefix_len[request]
    columns = {
        "request": request,
        "flat_index": flat,
        "minus_b_q": request * tree.width,
        "node": node,
        "next_token": result.predict[flat.long()],
        "kv_row_written": prefix + node,
        "kv_row_kept": prefix + depth,
        "hidden_row": node,
    }
    table = pd.DataFrame({name: values.tolist() for name, values in columns.items()})
    table.insert(4, "token", [labels[b][i] for b, i in zip(table["request"], table["node"], strict=True)])
    return table
