"""Checks live text: greedy text against autoregressive decoding, with near-ties named, and whether samples differ."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import pandas as pd
import torch

from ddtree.adaptive_budget import AutoBudget
from ddtree.decode import Strategy, generate
from ddtree.models.zoo import Pair
from ddtree.sampling import SamplingParams

GREEDY = SamplingParams(temperature=0.0)
MIN_VARIED_TEMPERATURE = 0.6  # from here on a few dozen sampled tokens are not all the same by chance
REGRESSION_COLUMNS = ["prompt", "strategy", "tokens", "equal", "first_difference", "gap_ulp"]
DRAFTED: tuple[Strategy, ...] = ("chain", "tree")


def greedy_regression(
    pair: Pair, prompts: Sequence[str], *, max_new_tokens: int, budget: int | AutoBudget, topk_cap: int
) -> pd.DataFrame:
    """Greedy text of chain and tree against autoregressive decoding, token by token: one row per prompt and strategy.

    Columns prompt, strategy, tokens (compared), equal, first_difference (None if equal) and gap_ulp: at the first
    difference, how far apart the two tokens' logits are in a plain forward, in units in the last place of the model's
    dtype (None too where one text has ended, so that there is no second token). In float32 every row must be equal; in
    bf16 a difference of at most about 2 ulp is a near-tie.
    """
    rows = []
    for index, prompt in enumerate(prompts):
        expected, *drafted = (
            generate(
                pair.target,
                pair.drafter,
                [prompt],
                strategy=strategy,
                sampling=GREEDY,
                max_new_tokens=max_new_tokens,
                budget=budget,
                topk_cap=topk_cap,
            )[0]
            for strategy in ("autoregressive", *DRAFTED)
        )
        for strategy, answer in zip(DRAFTED, drafted, strict=True):
            where, gap = first_difference(expected.tokens, answer.tokens), None
            if where is not None and where < min(len(expected.tokens), len(answer.tokens)):
                context = expected.prompt + expected.tokens[:where]
                gap = logit_gap_ulp(pair, context, expected.tokens[where], answer.tokens[where])
            rows.append((index, strategy, len(expected.tokens), where is None, where, gap))
    return pd.DataFrame(rows, columns=REGRESSION_COLUMNS)


def first_difference(expected: Sequence[int], found: Sequence[int]) -> int | None:
    """The first index where two texts differ, the end of the shorter one included; None if they are equal."""
    return next((where for where, (a, b) in enumerate(zip_longest(expected, found)) if a != b), None)


@torch.inference_mode()
def logit_gap_ulp(pair: Pair, context: Sequence[int], first: int, second: int) -> float:
    """|logit(first) - logit(second)| after `context` in a plain forward, in ulp of the larger, at the model's dtype."""
    ids = torch.tensor([list(context)], device=pair.target.device)
    both = pair.target.model(input_ids=ids, use_cache=False).logits[0, -1, [first, second]].float()
    dtype = torch.finfo(pair.target.model.dtype)
    ulp = dtype.eps * 2.0 ** torch.floor(torch.log2(both.abs().max().clamp(min=dtype.tiny))).item()
    return (both[0] - both[1]).abs().item() / ulp


def diversity(
    pair: Pair,
    prompt: str,
    *,
    temperatures: Sequence[float],
    samples: int,
    max_new_tokens: int,
    budget: int | AutoBudget,
    topk_cap: int,
    seed: int,
) -> pd.DataFrame:
    """Answers to one prompt, decoded as one batch with different seeds: one row (temperature, sample, text) each.

    Greedy answers must all be equal; sampled ones must not be from `MIN_VARIED_TEMPERATURE` on. 0 samples give no row.
    """
    rows: list[tuple[float, int, str]] = []
    for temperature in temperatures:
        answers = generate(
            pair.target,
            pair.drafter,
            [prompt] * samples,
            strategy="tree",
            sampling=SamplingParams(temperature),
            max_new_tokens=max_new_tokens,
            budget=budget,
            topk_cap=topk_cap,
            seed=[seed + sample for sample in range(samples)],
        )
        rows += [(temperature, sample, answer.text) for sample, answer in enumerate(answers)]
    return pd.DataFrame(rows, columns=["temperature", "sample", "text"])


def distinct_texts(texts: pd.DataFrame) -> dict[float, int]:
    """The number of different answers that `diversity` got at each temperature."""
    counts = texts.groupby("temperature")["text"].nunique()
    return dict(zip(counts.index.astype(float).tolist(), counts.tolist(), strict=True))
