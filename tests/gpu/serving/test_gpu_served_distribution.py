"""The first tokens of thousands of samples against as many of the plain engine, with the power of the comparison.

The first token of a text comes from its prompt, the second and third from walks over trees. In float16: in bfloat16 a
logit of 16 to 32 is rounded to multiples of an eighth, by a verify pass otherwise than by a decode step, and thousands
of samples would find that (they did, at T = 0.6), whatever the sampling.

Filters are compared one at a time. With two in one request SGLang itself differs: its plain engine applies top-p to the
whole distribution, its speculative verify to what top-k left, as the library does. So there the library's distribution
is the reference, and the plain engine's samples are a negative control.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import pytest
from ddtree.sampling import target_probs
from ddtree.workbook.bench_serving.client import Client
from ddtree.workbook.exactness.goodness_of_fit import smallest_departure
from scipy import stats
from scored import rows_of
from served import NEEDS, PROMPTS

pytestmark = [*NEEDS, pytest.mark.servers("tree in float16", "plain in float16")]

SAMPLES, AT_ONCE = 6_000, 2_000
LEAST = 20  # of both samples in one cell; smaller cells are pooled
FITS = 1e-4  # p-value, of 16 comparisons
SETTINGS: dict[str, dict[str, float]] = {
    "T=0.6": {"temperature": 0.6},
    "T=1": {"temperature": 1.0},
    "T=1, top-k 20": {"temperature": 1.0, "top_k": 20},
    "T=1, top-p 0.87": {"temperature": 1.0, "top_p": 0.87},
    "T=1, min-p 0.05": {"temperature": 1.0, "min_p": 0.05},
}
BOTH = {"temperature": 1.0, "top_k": 20, "top_p": 0.87}  # a p that no sum of likeliest tokens comes near
OUTCOMES: dict[str, Callable[[Sequence[int]], Hashable]] = {
    "first token": lambda text: text[0],
    "second token": lambda text: text[1],
    "second and third": lambda text: tuple(text[1:3]),
}


def texts(server: Client, sampling: dict[str, float], samples: int = SAMPLES) -> list[list[int]]:
    asked: dict[str, Any] = {**sampling, "max_new_tokens": 3, "ignore_eos": True}
    rounds = samples // AT_ONCE
    answers = (server.generate([PROMPTS[1]] * AT_ONCE, [asked] * AT_ONCE) for _ in range(rounds))
    return [answer["output_ids"] for batch in answers for answer in batch]


def compared(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> tuple[float, float]:
    """p of chi-square over two samples, and the total variation that it finds with 99 % power at 1 %."""
    counts = [Counter(ours), Counter(theirs)]
    table = np.array([[count[key] for key in {**counts[0], **counts[1]}] for count in counts])  # [2, outcomes]
    large = table.sum(axis=0) >= LEAST
    cells = np.concatenate([table[:, large], table[:, ~large].sum(axis=1, keepdims=True)], axis=1)
    cells = cells[:, cells.sum(axis=0) > 0]
    # Two samples of n are as telling as one of n/2 against a known distribution.
    distribution = cells.sum(axis=0) / cells.sum()
    return float(stats.chi2_contingency(cells).pvalue), smallest_departure([(len(ours) / 2, distribution)])


@pytest.mark.parametrize("setting", SETTINGS)
def test_samples_are_the_plain_engine_s(
    servers: dict[str, Client], setting: str, record_property: Callable[[str, object], None]
) -> None:
    ours, theirs = (texts(servers[f"{name} in float16"], SETTINGS[setting]) for name in ("tree", "plain"))
    for outcome, of in OUTCOMES.items():
        p, found = compared([of(text) for text in ours], [of(text) for text in theirs])
        line = f"{setting}, {outcome}: p = {p:.3f}, finds departures of {found:.1%} of the mass"
        print(line)
        record_property(outcome, line)
        assert p > FITS, line
        assert found < 0.1, line


def test_another_temperature_is_rejected(servers: dict[str, Client]) -> None:
    """The control: a tenth more heat."""
    ours, theirs = (
        texts(servers[f"{name} in float16"], {"temperature": heat}) for name, heat in (("tree", 0.7), ("plain", 0.6))
    )
    of = OUTCOMES["second and third"]
    assert compared([of(text) for text in ours], [of(text) for text in theirs])[0] < 1e-6


def test_two_filters_follow_one_another(
    servers: dict[str, Client], record_property: Callable[[str, object], None]
) -> None:
    distribution = target_probs(rows_of(PROMPTS[1], [0]), **BOTH)[0].cpu()  # [V], of the first token
    kept = distribution.nonzero()[:, 0].tolist()
    found = {}
    for name in ("tree", "plain"):
        counts = Counter(text[0] for text in texts(servers[f"{name} in float16"], BOTH))
        outside = SAMPLES - sum(counts[token] for token in kept)
        wanted = [SAMPLES * float(distribution[token]) for token in kept]
        fit = stats.chisquare([counts[token] for token in kept], [w * (1 - outside / SAMPLES) for w in wanted])
        found[name] = outside, float(fit.pvalue)
    print(f"{len(kept)} tokens are kept; outside them and p: {found}")
    record_property("outside and p", found)
    outside, p = found["tree"]
    assert outside == 0
    assert p > FITS
    assert found["plain"][0] > SAMPLES / 100, "a control: the plain engine keeps more"
