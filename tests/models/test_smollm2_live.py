"""The real pair in float32: drafting changes no greedy text, and no neighbour changes a request."""

from pathlib import Path

import pytest
from ddtree.decode import generate
from ddtree.models.zoo import Pair, load_pair
from ddtree.sampling import SamplingParams

pytestmark = pytest.mark.model

PROMPTS = ["Explain in three sentences why the sky is blue.", "Write a Python function that adds two numbers."]
GREEDY = SamplingParams(0.0)
TREE = {"strategy": "tree", "budget": 16, "topk_cap": 4}


@pytest.fixture(scope="module")
def pair(smollm2: Path) -> Pair:
    return load_pair("smollm2-135m", dtype="float32")


@pytest.fixture(scope="module")
def one_by_one(pair: Pair) -> list[list[int]]:
    """24 greedy tokens of each prompt, without a draft."""
    done = [
        generate(pair.target, None, [prompt], strategy="autoregressive", sampling=GREEDY, max_new_tokens=24)[0]
        for prompt in PROMPTS
    ]
    assert all(len(answer.tokens) == 24 for answer in done)
    return [answer.tokens for answer in done]


@pytest.mark.parametrize("options", [{"strategy": "chain"}, TREE], ids=["chain", "tree"])
def test_greedy_text_is_that_of_one_by_one_decoding(pair: Pair, one_by_one: list[list[int]], options: dict) -> None:
    for prompt, expected in zip(PROMPTS, one_by_one, strict=True):
        found = generate(pair.target, pair.drafter, [prompt], sampling=GREEDY, max_new_tokens=24, **options)[0]
        assert found.tokens == expected
        assert found.mean_acceptance_length > 1.2, "the drafter knows its target"


def test_mixed_batch_gives_each_request_what_it_gets_alone(pair: Pair, one_by_one: list[list[int]]) -> None:
    prompts = [PROMPTS[0], PROMPTS[1], PROMPTS[1]]
    each = {
        "sampling": [GREEDY, SamplingParams(0.6, top_p=0.95), SamplingParams(1.0, top_k=50)],
        "max_new_tokens": [16, 16, 9],
        "seed": [1, 2, 3],
    }
    together = generate(pair.target, pair.drafter, prompts, **TREE, **each)
    for request, prompt in enumerate(prompts):
        own = {name: values[request] for name, values in each.items()}
        alone = generate(pair.target, pair.drafter, [prompt], **TREE, **own)[0]
        assert together[request].tokens == alone.tokens
        assert together[request].text == alone.text
    assert together[0].tokens == one_by_one[0][:16]
    assert together[1].tokens != one_by_one[1][:16], "sampled text is not the greedy one"
