"""When a request rests: its account by hand, no pass of the drafter meanwhile, and the same texts as ever."""

import pytest
import torch
from ddtree.adaptive_budget import FIRST_REST, AutoBudget, Rest, RoundCost
from ddtree.decode import Generation, generate
from ddtree.models.drafter import DrafterSession
from ddtree.sampling import SamplingParams
from ddtree.tree import build_tree
from tiny import tiny_drafter, tiny_target

PRICES = [1.25, 1.5, 2.0]  # by nodes beside the root
DEAR = RoundCost((0, 4, 8), (10.0, 10.5, 11.0), alone_ms=3.0)  # a round without an accepted draft is enough to rest
HOPELESS = RoundCost((0, 4, 8), (10.0, 10.5, 11.0), alone_ms=1.0)  # no round pays
PROMPTS = [[5, 1, 3], [6, 2, 4, 4], [7]]


def rounds(rest: Rest, size: int, emitted: int, count: int) -> list[tuple[float, int]]:
    found = []
    for _ in range(count):
        rest.update(size, emitted)
        found.append((rest.surplus, rest.left))
    return found


def test_rest_begins_below_a_debt_of_two_tokens_and_lasts_sixteen_rounds() -> None:
    rest = Rest(PRICES)
    assert rounds(rest, size=2, emitted=1, count=4) == [(-0.5, 0), (-1.0, 0), (-1.5, 0), (-2.0, 0)]
    assert rounds(rest, size=2, emitted=1, count=1) == [(-1.5, 16)]
    assert [left for _, left in rounds(rest, size=1, emitted=1, count=16)] == list(range(15, -1, -1))
    assert rest.surplus == -1.5, "rounds at rest neither cost nor bring"


def test_rest_doubles_while_drafting_does_not_pay_and_starts_anew_when_it_has() -> None:
    rest = Rest(PRICES, surplus=-1.5, length=32)
    assert rounds(rest, size=2, emitted=1, count=2) == [(-2.0, 0), (-1.5, 32)]
    rounds(rest, size=1, emitted=1, count=32)
    assert (rest.left, rest.length) == (0, 64)
    assert rounds(rest, size=3, emitted=3, count=1) == [(-0.5, 0)]
    assert rest.length == 64, "not all of the debt is paid"
    assert rounds(rest, size=2, emitted=2, count=1) == [(0.0, 0)]
    assert rest.length == 16


def test_no_more_than_two_tokens_of_a_good_stretch_are_remembered() -> None:
    assert rounds(Rest(PRICES), size=3, emitted=8, count=2) == [(2.0, 0), (2.0, 0)]


def test_prices_are_the_tokens_of_plain_decoding_in_the_time_of_a_round() -> None:
    choices = AutoBudget(RoundCost((0, 2), (5.0, 8.0), alone_ms=4.0)).start(2)
    assert [rest.prices for rest in choices.rests] == [[1.25, 1.625, 2.0]] * 2


def test_tree_of_a_resting_row_is_its_root_and_others_keep_theirs() -> None:
    logits = 2 * torch.randn(3, 4, 11, generator=torch.Generator().manual_seed(1))
    tree = build_tree(logits, torch.tensor([1, 2, 3]), budget=8, topk_cap=3)
    choices = AutoBudget(DEAR).start(3)
    awake = choices.cut(tree).sizes.tolist()
    assert min(awake) > 1
    choices.rests[1].left = 5
    assert choices.cut(tree).sizes.tolist() == [awake[0], 1, awake[2]]
    choices.select(torch.tensor([1, 2]), [1, 2])
    assert [rest.left for rest in choices.rests] == [5, 0]
    assert not choices.all_rest
    choices.select(torch.tensor([0]), [0])
    assert choices.all_rest


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each pass of the drafter."""
    seen: list[int] = []
    draft = DrafterSession.draft

    def counted(self: DrafterSession, root_tokens: torch.Tensor, depth: int) -> torch.Tensor:
        seen.append(len(root_tokens))
        return draft(self, root_tokens, depth)

    monkeypatch.setattr(DrafterSession, "draft", counted)
    return seen


def decoded(cost: RoundCost, prompts: list[list[int]], seeds: list[int], tokens: int = 90) -> list[Generation]:
    target = tiny_target(8)
    return generate(
        target,
        tiny_drafter(target),
        prompts,
        strategy="tree",
        sampling=SamplingParams(1.0),
        max_new_tokens=tokens,
        budget=AutoBudget(cost),
        topk_cap=3,
        seed=seeds,
    )


def shapes(answer: Generation) -> list[tuple[int, int]]:
    return [(step.tree_size, step.emitted) for step in answer.steps]


def test_drafter_makes_no_pass_while_all_rest(passes: list[int]) -> None:
    """Rounds 0, 17 and 50 draft: the rests between are of 16 and 32, and the third outlasts the answer."""
    answer = decoded(HOPELESS, PROMPTS[:1], [3], tokens=60)[0]
    assert passes == [1] * 3
    assert [number for number, step in enumerate(answer.steps) if step.tree_size > 1] == [0, 17, 50]
    at_rest = [step for number, step in enumerate(answer.steps) if number not in (0, 17, 50)]
    assert all(step.emitted == 1 and step.stage_ms["draft"] == 0 for step in at_rest)


def test_drafter_makes_its_pass_while_one_row_of_the_batch_drafts(passes: list[int]) -> None:
    answers = decoded(DEAR, PROMPTS, [3, 4, 5])
    longest = max(len(answer.steps) for answer in answers)
    drafting = {n for answer in answers for n, step in enumerate(answer.steps) if step.tree_size > 1}
    assert len(passes) == len(drafting) < longest
    assert any(
        len({answer.steps[n].tree_size > 1 for answer in answers if n < len(answer.steps)}) == 2 for n in drafting
    ), "in some round one rests and another drafts"


@pytest.mark.parametrize("shift", [0, 10, 20])
def test_request_rests_in_a_batch_when_it_rests_alone_and_says_the_same(shift: int) -> None:
    seeds = [shift + 3, shift + 4, shift + 5]
    together = decoded(DEAR, PROMPTS, seeds)
    for answer, prompt, seed in zip(together, PROMPTS, seeds, strict=True):
        alone = decoded(DEAR, [prompt], [seed])[0]
        assert answer.tokens == alone.tokens
        assert shapes(answer) == shapes(alone)
    drafted = [[step.tree_size > 1 for step in answer.steps] for answer in together]
    assert all(any(one[FIRST_REST:]) and not all(one) for one in drafted), "each rests and drafts again"


def test_greedy_text_with_rests_is_one_by_one_text() -> None:
    target = tiny_target(8)
    options = {"sampling": SamplingParams(0.0), "max_new_tokens": 60}
    plain = generate(target, None, PROMPTS, strategy="autoregressive", **options)
    for cost in (DEAR, HOPELESS):
        trees = generate(target, tiny_drafter(target), PROMPTS, strategy="tree", budget=AutoBudget(cost), **options)
        assert [answer.tokens for answer in trees] == [answer.tokens for answer in plain]
