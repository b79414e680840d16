"""A served text is replayed by the Hugging Face loop from its prompt and seed, as far as both compute the same logits.

SGLang's kernels have no float32, and in float16 two programs round differently: a coin near a threshold, or a near-tie
among drafts, ends the agreement sooner or later. With another seed it ends at once, which is the negative control.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from ddtree.decode import generate
from ddtree.models.zoo import Pair, load_pair
from ddtree.sampling import SamplingParams
from ddtree.workbook.bench_serving.client import Client
from served import NEEDS, PROMPTS, Asked, alone

pytestmark = [*NEEDS, pytest.mark.servers("tree in float16")]

TOKENS, BUDGET, TOPK_CAP = 48, 16, 4
KINDS = ({"temperature": 1.0}, {"temperature": 0.7, "top_p": 0.9}, {"temperature": 1.0, "top_k": 40})


def replay(pair: Pair, prompt: list[int], seed: int, **sampling: float) -> list[int]:
    """The first token has no tree, as after a prefill; the next rounds begin with it as the root."""
    params = SamplingParams(**sampling)  # type: ignore[arg-type]
    (first,) = generate(
        pair.target, None, [prompt], strategy="autoregressive", sampling=params, seed=seed, max_new_tokens=1
    )
    (rest,) = generate(
        pair.target, pair.drafter, [prompt + first.tokens], strategy="tree", sampling=params, seed=seed,
        budget=BUDGET, topk_cap=TOPK_CAP, max_new_tokens=TOKENS - 1
    )  # fmt: skip
    return first.tokens + rest.tokens


def agreeing(text: list[int], other: list[int]) -> int:
    """Tokens before the first difference."""
    pairs = zip(text, other, strict=False)
    return next((n for n, (one, two) in enumerate(pairs) if one != two), min(len(text), len(other)))


def test_served_texts_are_replayed_from_their_seeds(
    servers: dict[str, Client], record_property: Callable[[str, object], None]
) -> None:
    asked = [
        Asked(prompt, KINDS[n % 3] | {"max_new_tokens": TOKENS, "ignore_eos": True, "sampling_seed": 900 + n})
        for n, prompt in enumerate(PROMPTS)
    ]
    served = alone(servers["tree in float16"], asked)
    pair = load_pair("smollm2-135m", "auto", dtype="float16", device="cuda")
    prompts = [pair.target.tokenizer.encode(prompt) for prompt in PROMPTS]
    found: dict[str, list[int]] = {"same seed": [], "another seed": []}
    for n, (prompt, text) in enumerate(zip(prompts, served, strict=True)):
        for name, seed in (("same seed", 900 + n), ("another seed", 5000 + n)):
            found[name].append(agreeing(replay(pair, prompt, seed, **KINDS[n % 3]), text))
    print(found)
    record_property("tokens before the first difference", found)
    assert sorted(found["same seed"])[len(PROMPTS) // 2] >= 16
    assert sorted(found["another seed"])[len(PROMPTS) // 2] < 8
