"""A served text is replayed by the Hugging Face loop from its prompt and seed, token for token in float32."""

from __future__ import annotations

import pytest
from ddtree.decode import generate
from ddtree.models.zoo import load_pair
from ddtree.sampling import SamplingParams
from ddtree.workbook.bench_serving.client import Client
from served import NEEDS, PROMPTS, Asked, alone, together

pytestmark = [*NEEDS, pytest.mark.servers("tree in float32")]

TOKENS, BUDGET, TOPK_CAP = 48, 16, 4


def test_served_texts_are_replayed_from_their_seeds(servers: dict[str, Client]) -> None:
    """The first token has no tree, as after a prefill; the next rounds begin with it as the root."""
    kinds = ({"temperature": 1.0}, {"temperature": 0.7, "top_p": 0.9}, {"temperature": 1.0, "top_k": 40})
    asked = [
        Asked(prompt, kinds[n % 3] | {"max_new_tokens": TOKENS, "ignore_eos": True, "sampling_seed": 900 + n})
        for n, prompt in enumerate(PROMPTS)
    ]
    served = alone(servers["tree in float32"], asked)
    assert together(servers["tree in float32"], asked) == served

    pair = load_pair("smollm2-135m", "auto", dtype="float32", device="cuda")
    for each, text in zip(asked, served, strict=True):
        given = {name: value for name, value in each.sampling.items() if name in ("temperature", "top_k", "top_p")}
        options = {"sampling": SamplingParams(**given), "seed": each.sampling["sampling_seed"]}
        prompt = pair.target.tokenizer.encode(each.prompt)
        (first,) = generate(pair.target, None, [prompt], strategy="autoregressive", max_new_tokens=1, **options)
        (rest,) = generate(
            pair.target, pair.drafter, [prompt + first.tokens], strategy="tree", budget=BUDGET, topk_cap=TOPK_CAP,
            max_new_tokens=TOKENS - 1, **options
        )  # fmt: skip
        replayed = first.tokens + rest.tokens  # ends with an end-of-text token, which the server was told to ignore
        assert replayed == text[: len(replayed)], each.prompt
