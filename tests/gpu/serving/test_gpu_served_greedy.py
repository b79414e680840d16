"""Stage against stage without chance: chain against stock DFLASH, graphs against eager, tree against plain."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from ddtree.workbook.bench_serving.client import Client
from served import NEEDS, PROMPTS, Asked, alone, forget, together

pytestmark = [*NEEDS, pytest.mark.servers("tree")]

TOKENS = 96
NEAR_TIE = 0.25  # nats: logits of bfloat16 in 16..32 are 0.125 apart, and two of them round
GREEDY = [Asked(prompt, {"temperature": 0.0, "max_new_tokens": TOKENS, "ignore_eos": True}) for prompt in PROMPTS]
HOT = [
    Asked(prompt, {"temperature": 1.0, "max_new_tokens": TOKENS, "ignore_eos": True, "sampling_seed": 40 + place})
    for place, prompt in enumerate(PROMPTS)
]


@pytest.mark.servers("chain", "dflash")
def test_chain_is_stock_dflash_token_for_token(servers: dict[str, Client]) -> None:
    assert alone(servers["chain"], GREEDY) == alone(servers["dflash"], GREEDY)


@pytest.mark.servers("eager")
@pytest.mark.parametrize("asked", [GREEDY, HOT], ids=["T=0", "T=1, seeded"])
def test_graphs_and_overlap_give_what_eager_gives(servers: dict[str, Client], asked: list[Asked]) -> None:
    assert alone(servers["tree"], asked) == alone(servers["eager"], asked)


def test_seeded_texts_differ_from_greedy_ones_and_by_seed(servers: dict[str, Client]) -> None:
    again = [Asked(each.prompt, each.sampling | {"sampling_seed": 400}) for each in HOT]
    texts = [alone(servers["tree"], asked) for asked in (GREEDY, HOT, again)]
    different = [len({tuple(text) for text in of_prompt}) for of_prompt in zip(*texts, strict=True)]
    assert sorted(different)[1:] == [3] * (len(PROMPTS) - 1), "all but the prompt that counts to 8 leave much open"


@pytest.mark.servers("plain")
@pytest.mark.parametrize("ask", [alone, together])
def test_tree_parts_from_the_plain_engine_at_near_ties_alone(
    servers: dict[str, Client],
    ask: Callable[[Client, list[Asked]], list[list[int]]],
    record_property: Callable[[str, object], None],
) -> None:
    """Up to its first difference a text has the plain engine's own prefix, so the plain row is the reference."""
    told = []
    forget(servers["plain"])
    for asked, text in zip(GREEDY, ask(servers["tree"], GREEDY), strict=True):
        theirs, places = servers["plain"].top_logprobs(asked.prompt, 8, **asked.sampling)
        first = next((n for n, (own, other) in enumerate(zip(text, theirs, strict=True)) if own != other), None)
        if first is None:
            told.append("equal")
            continue
        logprobs = {token: logprob for logprob, token in places[first]}
        assert text[first] in logprobs, f"token {first} after {asked.prompt!r} is none of the 8 likeliest"
        gap = places[first][0][0] - logprobs[text[first]]
        told.append(f"token {first}, {gap:.3f} nats")
        assert gap <= NEAR_TIE, f"token {first} after {asked.prompt!r}"
    print("; ".join(told))
    record_property("first differences", told)
