"""64 requests that come and go, none of which disturbs another, scored by the model in float32; and what is refused."""

from __future__ import annotations

import pytest
from ddtree.workbook.bench_serving.client import Client, RefusedError
from scored import Surprise, below_rank, gaps, surprise
from served import NEEDS, PROMPTS, Asked, arriving
from wording import names

pytestmark = [*NEEDS, pytest.mark.servers("tree")]

NEAR_TIE = 0.5  # nats: the server computes in bf16, the scoring in float32
MOST_SIGMAS = 4.0
TEMPERATURES = (0.0, 0.6, 1.0, 1.3)
MIXED = [
    Asked(
        PROMPTS[n % len(PROMPTS)] + " and" * (n % 5),  # prefixes that the radix cache shares, and some that it does not
        {
            "temperature": TEMPERATURES[n % 4],
            "max_new_tokens": (5, 20, 48, 96, 150)[n % 5],
            "ignore_eos": True,
            "sampling_seed": n,
        }
        | ({"top_k": 3} if n % 7 == 2 else {}),
    )
    for n in range(64)
]


def test_requests_that_come_and_go_get_their_own_texts(servers: dict[str, Client]) -> None:
    texts = arriving(servers["tree"], MIXED, spread_s=1.5)
    assert [len(text) for text in texts] == [asked.sampling["max_new_tokens"] for asked in MIXED]
    sampled = {temperature: Surprise() for temperature in TEMPERATURES[1:]}
    for asked, text in zip(MIXED, texts, strict=True):
        temperature = asked.sampling["temperature"]
        if temperature == 0:
            worst = gaps(asked.prompt, text).max()
            assert worst < NEAR_TIE, f"a greedy text after {asked.prompt!r} holds a token {worst:.2f} nats off"
        elif "top_k" in asked.sampling:
            assert below_rank(asked.prompt, text, 3).max() < NEAR_TIE, asked
        else:
            sampled[temperature] += surprise(asked.prompt, text, temperature)
    for temperature, found in sampled.items():
        print(f"T={temperature}: surprise less entropy {found.sigmas:+.2f} sigmas")
        assert abs(found.sigmas) < MOST_SIGMAS, temperature


def test_scoring_sees_a_text_of_another_prompt(servers: dict[str, Client]) -> None:
    """A control: what a disturbed request would look like."""
    ours, others = (arriving(servers["tree"], [MIXED[n]], 0.0)[0] for n in (8, 4))
    assert gaps(MIXED[8].prompt, ours).max() < NEAR_TIE
    assert gaps(MIXED[8].prompt, others).max() > NEAR_TIE


@pytest.mark.parametrize(
    ("sampling", "reason"),
    [
        ({"frequency_penalty": 0.5}, "frequency_penalty 0.5"),
        ({"min_new_tokens": 4}, "min_new_tokens 4"),
        ({"regex": "a+"}, "regex"),
    ],
)
def test_what_is_not_served_is_refused(servers: dict[str, Client], sampling: dict[str, object], reason: str) -> None:
    with pytest.raises(RefusedError, match=names(reason)):
        servers["tree"].generate([PROMPTS[0]], [{"max_new_tokens": 4, **sampling}])


def test_logprobs_are_refused_and_a_bias_is_obeyed(servers: dict[str, Client]) -> None:
    with pytest.raises(RefusedError, match=names("logprobs")):
        servers["tree"].generate([PROMPTS[0]], [{"max_new_tokens": 4}], return_logprob=True)
    biased = Asked(PROMPTS[0], {"max_new_tokens": 12, "logit_bias": {"28": 100.0}, "ignore_eos": True})
    assert set(arriving(servers["tree"], [biased], 0.0)[0]) == {28}
