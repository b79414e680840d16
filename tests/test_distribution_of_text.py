"""Whole texts against the enumerated distribution: every strategy on every backend, mixed batches too."""

import itertools
import sys
from collections.abc import Iterator, Sequence

import fake_sgl_kernel
import numpy as np
import pytest
import torch
from ddtree.adaptive_budget import AutoBudget, RoundCost
from ddtree.backends import registry, sgl
from ddtree.decode import generate
from ddtree.models.drafter import Drafter
from ddtree.models.target import Target
from ddtree.sampling import SamplingParams, target_probs
from ddtree.verify import backend_report
from ddtree.workbook.exactness.goodness_of_fit import Fit, fit, pool
from tiny import tiny_drafter, tiny_target

VOCAB, TOKENS, EOS = 4, 3, 2
PROMPTS = [[1, 3, 2], [3, 3], [1]]
SAMPLING = [SamplingParams(1.0), SamplingParams(0.7, top_k=3, top_p=0.95), SamplingParams(1.4, min_p=0.1)]
STRATEGIES = {
    "autoregressive": {},
    "chain": {},
    "tree": {"budget": 8},
    "tree of 3": {"budget": 3, "topk_cap": 2},
    "tree, chosen": {"budget": AutoBudget(RoundCost((0, 4, 8), (10.0, 11.0, 16.0), baseline_ms=9.0))},
    # One token in a first round is a debt that is slept off, two are not: whether a text is drafted depends on it.
    "tree, resting": {"budget": AutoBudget(RoundCost((0, 4, 8), (10.0, 10.5, 11.0), baseline_ms=3.0))},
    "tree, matched": {"budget": 10, "draft_temperature": "match"},
}
SHORT = ("chain", "tree")  # those that are tested where not all are; the others are slow there
Text = tuple[int, ...]
Pair = tuple[Target, Drafter]


@pytest.fixture(scope="module")
def pair() -> Pair:
    target = tiny_target(VOCAB, seed=3)
    return target, tiny_drafter(target, seed=4)


@pytest.fixture
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each backend by name: the real one where it runs, a stand-in with the op's semantics where it does not."""
    if request.param == "sgl" and "sgl" not in {s.name for s in backend_report("cpu") if s.usable}:
        monkeypatch.setitem(sys.modules, "sgl_kernel", fake_sgl_kernel)
        monkeypatch.setattr(sgl, "missing", lambda device_type: None)
        registry.self_test.cache_clear()
    yield request.param
    monkeypatch.undo()
    registry.self_test.cache_clear()


def text_distribution(target: Target, prompt: Sequence[int], params: SamplingParams, *, eos: int | None = None) -> dict:
    """P(text) from plain passes over every text of TOKENS tokens, or fewer where one ends with `eos`."""
    distribution: dict[Text, float] = {}
    open_texts: dict[Text, float] = {(): 1.0}
    for _ in range(TOKENS):
        longer: dict[Text, float] = {}
        for text, mass in open_texts.items():
            with torch.inference_mode():
                logits = target.model(input_ids=torch.tensor([[*prompt, *text]]), use_cache=False).logits[0, -1]
            filters = {"top_k": params.top_k, "top_p": params.top_p, "min_p": params.min_p}
            row = target_probs(logits, temperature=params.temperature, **filters).double().tolist()
            for token, p in enumerate(row):
                ended = token == eos or len(text) + 1 == TOKENS
                (distribution if ended else longer)[(*text, token)] = mass * p
        open_texts = longer
    return distribution


def seen_fits(done: Sequence[Text], distribution: dict[Text, float]) -> Fit:
    order = list(distribution)
    counts = dict.fromkeys(order, 0)
    for text in done:
        counts[text] += 1  # a text outside the distribution is a KeyError
    return fit([pool(list(counts.values()), [distribution[text] for text in order])])


def texts(pair: Pair, draws: int, **options: object) -> list[list[Text]]:
    """By prompt: `draws` texts each, all prompts and draws in one batch, each with its own parameters."""
    rows = list(itertools.product(range(len(PROMPTS)), range(draws)))
    done = generate(
        *pair,
        [PROMPTS[prompt] for prompt, _ in rows],
        sampling=[SAMPLING[prompt] for prompt, _ in rows],
        max_new_tokens=TOKENS,
        seed=[10_000 * prompt + draw for prompt, draw in rows],
        **options,
    )
    found: list[list[Text]] = [[] for _ in PROMPTS]
    for (prompt, _), generation in zip(rows, done, strict=True):
        found[prompt].append(tuple(generation.tokens))
    return found


def slow_unless_short(name: str) -> tuple[pytest.MarkDecorator, ...]:
    return () if name in SHORT else (pytest.mark.slow,)


def run_of(name: str) -> dict[str, object]:
    return {"strategy": name.partition(" ")[0].rstrip(","), **STRATEGIES[name]}


@pytest.mark.parametrize(
    ("strategy", "backend"),
    [(name, "reference") for name in STRATEGIES]
    + [pytest.param(name, "sgl", marks=slow_unless_short(name)) for name in STRATEGIES],
    indirect=["backend"],
)
def test_each_request_of_a_mixed_batch_has_its_own_distribution(pair: Pair, strategy: str, backend: str) -> None:
    draws = 1200 if backend == "reference" else 500
    found = texts(pair, draws, backend=backend, **run_of(strategy))
    for prompt, params, done in zip(PROMPTS, SAMPLING, found, strict=True):
        result = seen_fits(done, text_distribution(pair[0], prompt, params))
        assert result.p > 1e-3, (prompt, params)
        assert result.df > 5
        hotter = SamplingParams(1.6 * params.temperature, params.top_k, params.top_p, params.min_p)
        colder = {text: 0.0 for text in text_distribution(pair[0], prompt, params)}
        colder |= text_distribution(pair[0], prompt, hotter)
        assert seen_fits(done, colder).p < 1e-3, "another temperature must be seen at this size"


def test_a_text_is_drafted_on_where_its_first_round_accepted_a_draft_and_rests_elsewhere(pair: Pair) -> None:
    """What the distribution of "tree, resting" is tested on: rounds whose kind depends on what was said before."""
    seeds = list(range(200))
    options = {"sampling": SAMPLING[0], "max_new_tokens": TOKENS, "seed": seeds, **run_of("tree, resting")}
    kinds = set()
    for generation in generate(*pair, [PROMPTS[0]] * len(seeds), **options):
        first, *others = generation.steps
        if others:
            assert (others[0].tree_size == 1) == (first.accepted == 0)
            kinds.add(first.accepted)
    assert kinds == {0, 1}


@pytest.mark.parametrize("strategy", [pytest.param(name, marks=slow_unless_short(name)) for name in STRATEGIES])
def test_texts_that_end_early_have_the_distribution_of_texts_that_end_early(strategy: str) -> None:
    target = tiny_target(VOCAB, seed=3, eos_ids=[EOS])
    found = texts((target, tiny_drafter(target, seed=4)), 1200, **run_of(strategy))
    for prompt, params, done in zip(PROMPTS, SAMPLING, found, strict=True):
        distribution = text_distribution(target, prompt, params, eos=EOS)
        assert len({len(text) for text in distribution}) == TOKENS, "some texts are shorter"
        assert sum(distribution.values()) == pytest.approx(1)
        assert seen_fits(done, distribution).p > 1e-3


def test_strategies_draw_apart_from_one_another_but_from_one_distribution(pair: Pair) -> None:
    """Same seeds, so a tree and a chain share coins, yet not texts: sameness of texts is not what is claimed."""
    tree, plain = (texts(pair, 300, **run_of(name))[0] for name in ("tree", "autoregressive"))
    assert tree != plain


@pytest.mark.parametrize("strategy", ["autoregressive", "chain", "tree"])
def test_neighbouring_seeds_and_steps_are_independent(pair: Pair, strategy: str) -> None:
    """Coins are keyed by (seed, step): the texts of seeds s and s + 1 must fit the product of their distributions."""
    done = texts(pair, 1000, **run_of(strategy))[0]
    first = [text[0] for text in done]
    pairs = np.zeros((VOCAB, VOCAB))
    for one, other in zip(first[::2], first[1::2], strict=True):
        pairs[one, other] += 1
    row = np.zeros(VOCAB)
    for text, p in text_distribution(pair[0], PROMPTS[0], SAMPLING[0]).items():
        row[text[0]] += p
    assert fit([pool(pairs.ravel(), np.outer(row, row).ravel())]).p > 1e-3
