"""Every strategy gives what autoregressive decoding gives: the same greedy text, the same distribution of samples."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from ddtree.decode import STAGES, Generation, Step, generate
from ddtree.models.drafter import Drafter
from ddtree.models.target import Target
from ddtree.sampling import SamplingParams, target_probs
from loops import for_each
from oracles import goodness_of_fit
from tiny import tiny_drafter, tiny_target
from wording import names

VOCAB = 8
PROMPTS = [[5, 1, 3, 2, 7], [6], [1, 2, 3, 4, 5, 6, 7, 1, 2], [4, 4]]
GREEDY = SamplingParams(0.0)
Pair = tuple[Target, Drafter]


@pytest.fixture(scope="module")
def pair() -> Pair:
    target = tiny_target(VOCAB)
    return target, tiny_drafter(target)


def tokens_of(done: Sequence[Generation]) -> list[list[int]]:
    return [generation.tokens for generation in done]


def greedy_by_hand(target: Target, prompt: Sequence[int], count: int) -> list[int]:
    """Plain argmax decoding without cache, tree or loop of ours."""
    text = list(prompt)
    with torch.inference_mode():
        for _ in range(count):
            text.append(int(target.model(input_ids=torch.tensor([text]), use_cache=False).logits[0, -1].argmax()))
    return text[len(prompt) :]


# Greedy text


@for_each("seed", range(4))
def test_greedy_text_is_that_of_plain_decoding(seed: int) -> None:
    target = tiny_target(VOCAB, seed=seed)
    drafter = tiny_drafter(target, seed=seed + 100)
    right = [greedy_by_hand(target, prompt, 24) for prompt in PROMPTS]
    for strategy, options in (
        ("autoregressive", {}),
        ("chain", {}),
        *(("tree", {"budget": budget, "topk_cap": cap}) for budget, cap in ((0, None), (1, None), (5, 2), (12, 4))),
        *(("tree", {"budget": budget}) for budget in (3, 12)),
        ("tree", {"budget": 9, "draft_temperature": 0.3}),
        ("tree", {"budget": 9, "draft_temperature": "match"}),
    ):
        done = generate(target, drafter, PROMPTS, strategy=strategy, sampling=GREEDY, max_new_tokens=24, **options)
        assert tokens_of(done) == right, (strategy, options)


def test_drafts_are_accepted_and_save_passes(pair: Pair) -> None:
    """Without this the tests of sameness could pass on rejections alone."""
    for sampling in (GREEDY, SamplingParams()):
        done = generate(*pair, PROMPTS, strategy="tree", sampling=sampling, max_new_tokens=40, budget=12)
        assert sum(step.accepted for generation in done for step in generation.steps) > 20
        assert all(len(generation.steps) < 40 for generation in done)
        assert max(step.accepted for generation in done for step in generation.steps) >= 2


@for_each("budget", range(1, 13))
def test_greedy_tree_of_any_budget(pair: Pair, budget: int) -> None:
    plain = generate(pair[0], None, PROMPTS, strategy="autoregressive", sampling=GREEDY, max_new_tokens=20)
    tree = generate(*pair, PROMPTS, strategy="tree", sampling=GREEDY, max_new_tokens=20, budget=budget)
    assert tokens_of(tree) == tokens_of(plain)


def test_autoregressive_needs_no_drafter_and_takes_one_pass_a_token(pair: Pair) -> None:
    done = generate(pair[0], None, PROMPTS[:2], strategy="autoregressive", sampling=GREEDY, max_new_tokens=7)
    for generation in done:
        assert [step.emitted for step in generation.steps] == [1] * 7
        assert {step.tree_size for step in generation.steps} == {1}
        assert generation.mean_acceptance_length == 1.0


def test_chain_drafts_the_likeliest_token_of_every_position(pair: Pair) -> None:
    steps: list[Step] = []
    generate(
        *pair, PROMPTS, strategy="chain", sampling=GREEDY, max_new_tokens=8, budget=1, topk_cap=7, on_step=steps.append
    )
    for step in steps:
        assert step.tree.parents.tolist() == [[-1, 0, 1, 2]] * len(step.requests)


# Requests in a batch


MIXED = {
    "sampling": [SamplingParams(), GREEDY, SamplingParams(0.7, top_k=4), SamplingParams(1.5, top_p=0.9, min_p=0.02)],
    "max_new_tokens": [30, 11, 1, 23],
    "seed": [3, 4, 5, 2**63 + 6],
}


@pytest.mark.parametrize("options", [{}, {"draft_temperature": "match"}, {"strategy": "chain"}])
@pytest.mark.parametrize("shift", [0, 100, 200])
def test_mixed_batch_gives_each_request_what_it_gets_alone(pair: Pair, options: dict, shift: int) -> None:
    mixed = {**MIXED, "seed": [seed + shift for seed in MIXED["seed"]]}
    options = {"strategy": "tree", "budget": 9, "topk_cap": 4, **options}
    together = generate(*pair, PROMPTS, **options, **mixed)
    for request, prompt in enumerate(PROMPTS):
        own = {name: values[request] for name, values in mixed.items()}
        alone = generate(*pair, [prompt], **options, **own)[0]
        assert together[request].tokens == alone.tokens
        shapes = [
            [(step.tree_size, step.accepted, step.emitted) for step in generation.steps]
            for generation in (together[request], alone)
        ]
        assert shapes[0] == shapes[1], "drafts too are its own"
    assert [len(generation.tokens) for generation in together] == mixed["max_new_tokens"]


def test_order_in_the_batch_does_not_matter(pair: Pair) -> None:
    backwards = {name: values[::-1] for name, values in MIXED.items()}
    forward = generate(*pair, PROMPTS, strategy="tree", budget=9, **MIXED)
    reverse = generate(*pair, PROMPTS[::-1], strategy="tree", budget=9, **backwards)
    assert tokens_of(forward) == tokens_of(reverse)[::-1]


def test_seed_decides_the_text(pair: Pair) -> None:
    def texts(seed: int | None) -> list[list[int]]:
        return tokens_of(
            generate(*pair, [PROMPTS[0]] * 3, strategy="tree", sampling=SamplingParams(), seed=seed, max_new_tokens=24)
        )

    assert texts(7) == texts(7)
    assert texts(7) != texts(8)
    assert len(set(map(tuple, texts(7)))) == 1, "one seed for all gives equal requests equal coins"
    assert len(set(map(tuple, texts(None)))) == 3
    assert texts(None) != texts(None)


def test_greedy_text_does_not_depend_on_the_seed(pair: Pair) -> None:
    done = generate(*pair, [PROMPTS[0]] * 3, strategy="tree", sampling=GREEDY, seed=[1, 2, 3], max_new_tokens=16)
    assert len(set(map(tuple, tokens_of(done)))) == 1


# Where a text ends, and what is counted


@pytest.mark.parametrize("strategy", ["autoregressive", "chain", "tree"])
def test_text_stops_at_its_first_eos(pair: Pair, strategy: str) -> None:
    long = generate(*pair, PROMPTS, strategy="autoregressive", sampling=SamplingParams(), max_new_tokens=40, seed=2)
    eos = long[0].tokens[10]
    ending = tiny_target(VOCAB, eos_ids=[eos])
    done = generate(
        ending, tiny_drafter(ending), PROMPTS, strategy=strategy, sampling=SamplingParams(), max_new_tokens=40, seed=2
    )
    for generation in done:
        assert generation.tokens.count(eos) == (generation.reason == "eos")
        assert (generation.tokens[-1] == eos) == (generation.reason == "eos")
        assert len(generation.tokens) == 40 or generation.reason == "eos"
    assert "eos" in {generation.reason for generation in done}
    if strategy == "autoregressive":
        assert done[0].tokens == long[0].tokens[: long[0].tokens.index(eos) + 1]


@pytest.mark.parametrize("strategy", ["autoregressive", "chain", "tree"])
def test_counts_add_up_to_the_tokens(pair: Pair, strategy: str) -> None:
    done = generate(*pair, PROMPTS, strategy=strategy, budget=12, **MIXED)
    for generation, limit in zip(done, MIXED["max_new_tokens"], strict=True):
        assert sum(step.emitted for step in generation.steps) == len(generation.tokens) == limit
        assert generation.reason == "length"
        for step in generation.steps[:-1]:
            assert step.emitted == step.accepted + 1
        assert 0 <= generation.steps[-1].emitted - generation.steps[-1].accepted <= 1
        assert math.isclose(generation.mean_acceptance_length, limit / len(generation.steps))
        assert generation.text == " ".join(map(str, generation.tokens))
        assert all(set(step.stage_ms) == set(STAGES) for step in generation.steps)
        assert all(ms >= 0 for step in generation.steps for ms in step.stage_ms.values())


def test_last_round_counts_only_what_is_kept(pair: Pair) -> None:
    """A round that accepts more than the limit allows counts the limit's tokens, not its own."""
    limits = range(1, 13)
    cut = 0
    for limit in limits:
        steps: list[Step] = []
        done = generate(
            *pair, PROMPTS, strategy="tree", sampling=GREEDY, budget=12, max_new_tokens=limit, on_step=steps.append
        )
        for request, generation in enumerate(done):
            last = next(step for step in reversed(steps) if request in step.requests)
            offered = int(last.commit.lengths[last.requests.index(request)])
            cut += offered > generation.steps[-1].emitted
            assert len(generation.tokens) == limit == sum(step.emitted for step in generation.steps)
    assert cut > 3, "some rounds must have been cut"


def test_step_lays_the_round_open(pair: Pair) -> None:
    steps: list[Step] = []
    done = generate(*pair, PROMPTS, strategy="tree", budget=9, on_step=steps.append, **MIXED)
    assert [step.number for step in steps] == list(range(len(steps)))
    read: list[list[int]] = [[] for _ in PROMPTS]
    for step in steps:
        assert step.logits.shape == (len(step.requests), 10, VOCAB)
        assert step.commit.new_len.tolist() == (step.prefix_len + step.commit.lengths).tolist()
        for row, request in enumerate(step.requests):
            assert int(step.prefix_len[row]) == len(PROMPTS[request]) - 1 + len(read[request])
            text = [*PROMPTS[request], *read[request]]
            assert int(step.tree.tokens[row, 0]) == text[-1]
            read[request] += step.commit.tokens[row, : step.commit.lengths[row]].tolist()
    for request, generation in enumerate(done):
        assert read[request][: len(generation.tokens)] == generation.tokens


def test_text_prompts_are_encoded_by_the_target(pair: Pair) -> None:
    done = generate(*pair, ["5 1 3", [5, 1, 3]], strategy="tree", sampling=GREEDY, max_new_tokens=5)
    assert done[0].prompt == [5, 1, 3]
    assert done[0].text == done[1].text == " ".join(map(str, done[0].tokens))


def test_no_prompts_give_no_texts(pair: Pair) -> None:
    assert generate(*pair, [], strategy="tree", sampling=GREEDY) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompts": [[1], []]}, "prompt 1"),
        ({"strategy": "beam"}, "strategy beam"),
        ({"drafter": None}, "tree drafter"),
        ({"drafter": None, "strategy": "chain"}, "chain drafter"),
        ({"max_new_tokens": 0}, "max_new_tokens 0"),
        ({"max_new_tokens": [3]}, "max_new_tokens 1 2"),
        ({"sampling": [GREEDY] * 3}, "sampling 3 2"),
        ({"seed": [1, 2, 3]}, "seed 3 2"),
        ({"budget": -1}, "budget -1"),
        ({"topk_cap": 0}, "topk_cap 0"),
        ({"draft_temperature": 0.0}, "draft_temperature"),
        ({"backend": "best"}, "backend best"),
        ({"max_new_tokens": 500}, "256"),
    ],
)
def test_argument_out_of_range_is_named(pair: Pair, change: dict, message: str) -> None:
    arguments = {
        "target": pair[0],
        "drafter": pair[1],
        "prompts": [[1, 2], [3]],
        "strategy": "tree",
        "sampling": GREEDY,
        "max_new_tokens": 4,
    }
    with pytest.raises(ValueError, match=names(message)):
        generate(**{**arguments, **change})


# The distribution of whole texts


ENUMERATED_VOCAB, ENUMERATED_TOKENS, ENUMERATED_DRAWS = 5, 3, 3000


def distribution_by_enumeration(target: Target, prompt: list[int], sampling: SamplingParams) -> np.ndarray:
    """P(text) of every text of ENUMERATED_TOKENS tokens, from plain passes: [V, V, V]."""
    distribution = np.ones((ENUMERATED_VOCAB,) * ENUMERATED_TOKENS)
    with torch.inference_mode():
        for n in range(ENUMERATED_TOKENS):
            for text in itertools.product(range(ENUMERATED_VOCAB), repeat=n):
                logits = target.model(input_ids=torch.tensor([[*prompt, *text]]), use_cache=False).logits[0, -1]
                row = target_probs(
                    logits,
                    temperature=sampling.temperature,
                    top_k=sampling.top_k,
                    top_p=sampling.top_p,
                    min_p=sampling.min_p,
                ).double()
                distribution[text] *= row.numpy().reshape(-1, *[1] * (ENUMERATED_TOKENS - n - 1))
    return distribution


def text_counts(pair: Pair, prompt: list[int], first_seed: int, **options: object) -> np.ndarray:
    seeds = list(range(first_seed, first_seed + ENUMERATED_DRAWS))
    done = generate(*pair, [prompt] * ENUMERATED_DRAWS, max_new_tokens=ENUMERATED_TOKENS, seed=seeds, **options)
    counts = np.zeros((ENUMERATED_VOCAB,) * ENUMERATED_TOKENS)
    for generation in done:
        counts[tuple(generation.tokens)] += 1
    return counts


@pytest.fixture(scope="module")
def distribution_pair() -> Pair:
    target = tiny_target(ENUMERATED_VOCAB, seed=3)
    return target, tiny_drafter(target, seed=4)


@pytest.mark.parametrize(
    ("strategy", "budget", "sampling"),
    [
        ("tree", 6, SamplingParams(1.0)),
        ("tree", 12, SamplingParams(0.7, top_k=4, top_p=0.95)),
        ("chain", 3, SamplingParams(1.3)),
        ("autoregressive", 0, SamplingParams(1.0)),
    ],
)
def test_texts_fit_the_distribution_of_the_model(
    distribution_pair: Pair, strategy: str, budget: int, sampling: SamplingParams
) -> None:
    prompt = [1, 4, 2]
    distribution = distribution_by_enumeration(distribution_pair[0], prompt, sampling)
    assert math.isclose(distribution.sum(), 1, rel_tol=1e-6)
    counts = text_counts(distribution_pair, prompt, 1000, strategy=strategy, budget=budget, sampling=sampling)
    assert goodness_of_fit(counts.ravel(), distribution.ravel()) > 1e-3
    other = distribution_by_enumeration(distribution_pair[0], prompt, SamplingParams(1.25 * sampling.temperature))
    assert goodness_of_fit(counts.ravel(), other.ravel()) < 1e-6, "a quarter more heat must be seen at this size"
