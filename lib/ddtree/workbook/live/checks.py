"""Checks on live text: greedy text against one-by-one decoding, near-ties named, and whether samples differ."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import torch

from ddtree.adaptive_budget import AutoBudget
from ddtree.decode import Strategy, generate
from ddtree.models.zoo import Pair
from ddtree.sampling import SamplingParams

GREEDY = SamplingParams(temperature=0.0)
SURELY_VARIED = 0.6  # temperature from which a few dozen sampled tokens are not all the same by chance
REGRESSION_COLUMNS = ["prompt", "strategy", "tokens", "equal", "first_difference", "gap_ulp"]
DRAFTED: tuple[Strategy, ...] = ("chain", "tree")


def greedy_regression(
    pair: Pair, prompts: Sequence[str], *, max_new_tokens: int, budget: int | AutoBudget, topk_cap: int
) -> pd.DataFrame:
    """Greedy text of chain and tree against one-by-one decoding, token for token: one row per prompt and strategy.

    Columns prompt, strategy, tokens (compared), equal, first_difference (None if equal) and gap_ulp: at the first
    difference, how far apart the two tokens' logits are in a plain forward, in units in the last place of the model's
    dtype (None too where one text has ended, so that there is no second token). In float32 every row must be equal; in
    bf16 a difference of at most about 2 ulp is a near-tie.
    """
    rows = []
    for index, prompt in enumerate(prompts):
        answers = {
            strategy: generate(
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
        }
        expected = answers["autoregressive"]
        for strategy in DRAFTED:
            found = answers[strategy].tokens
            where = _first_difference(expected.tokens, found)
            gap = None
            if where is not None and where < min(len(expected.tokens), len(found)):
                context = expected.prompt + expected.tokens[:where]
                gap = logit_gap_ulp(pair, context, expected.tokens[where], found[where])
            rows.append(
                {
                    "prompt": index,
                    "strategy": strategy,
                    "tokens": len(expected.tokens),
                    "equal": where is None,
                    "first_difference": where,
                    "gap_ulp": gap,
                }
            )
    return pd.DataFrame(rows, columns=REGRESSION_COLUMNS)


@torch.inference_mode()
def logit_gap_ulp(pair: Pair, context: Sequence[int], first: int, second: int) -> float:
    """|logit(first) - logit(second)| after `context` in a plain forward, in ulp of the larger, at the model's dtype."""
    ids = torch.tensor([list(context)], device=pair.target.device)
    logits = pair.target.model(input_ids=ids, use_cache=False).logits[0, -1].float()
    gap = (logits[first] - logits[second]).abs().item()
    dtype = torch.finfo(pair.target.model.dtype)
    largest = torch.maximum(logits[first].abs(), logits[second].abs()).clamp(min=dtype.tiny)
    ulp = dtype.eps * 2.0 ** torch.floor(torch.log2(largest)).item()
    return gap / ulp


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
    """Several answers to one prompt, decoded as one batch whose seeds differ: one row per answer, none of 0 samples.

    Greedy answers must all be equal; from `SURELY_VARIED` on sampled ones must not.
    """
    rows = []
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
        rows += [
            {"temperature": temperature, "sample": sample, "text": answer.text} for sample, answer in enumerate(answers)
        ]
    return pd.DataFrame(rows, columns=["temperature", "sample", "text"])


def _first_difference(expected: Sequence[int], found: Sequence[int]) -> int | None:
    for where, (a, b) in enumerate(zip(expected, found, strict=False)):
        if a != b:
            return where
    return None if len(expected) == len(found) else min(len(expected), len(found))


def distinct_texts(texts: pd.DataFrame) -> dict[float, int]:
    """How many different answers `diversity` got at each temperature."""
    counts = texts.groupby("temperature")["text"].nunique()
    return dict(zip(counts.index.astype(float).tolist(), counts.tolist(), strict=True))
