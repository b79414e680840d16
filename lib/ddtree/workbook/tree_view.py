"""What 01_tree shows of a scene: the drafter's favourites, and a tree with the path that was accepted."""

from __future__ import annotations

from typing import Literal

import pandas as pd
import plotly.graph_objects as go

from ddtree.sampling import SamplingParams
from ddtree.workbook.plots import draw_tree
from ddtree.workbook.plots.token_text import plotly_text
from ddtree.workbook.scene import Scene


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
