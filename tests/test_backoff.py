"""Back-off: its balance by hand, no pass of the drafter meanwhile, and texts that do not change."""

import pytest
import torch
from ddtree.adaptive_budget import FIRST_BACKOFF, AutoBudget, Backoff, RoundCost
from ddtree.decode import Generation, generate
from ddtree.models.drafter import DrafterSession
from ddtree.sampling import SamplingParams
from ddtree.tree import build_tree
from tiny import tiny_drafter, tiny_target

COSTS = [1.25, 1.5, 2.0]  # by nodes without the root
COSTLY = RoundCost((0, 4, 8), (10.0, 10.5, 11.0), baseline_ms=3.0)  # one bad round starts a back-off
HOPELESS = RoundCost((0, 4, 8), (10.0, 10.5, 11.0), baseline_ms=1.0)  # no round pays
PROMPTS = [[5, 1, 3], [6, 2, 4, 4], [7]]


def rounds(backoff: Backoff, size: int, emitted: int, count: int) -> list[tuple[float, int]]:
    found = []
    for _ in range(count):
        backoff.update(size, emitted)
        found.append((backoff.token_balance, backoff.rounds_left))
    return found


def test_back_off_starts_two_tokens_behind_and_lasts_sixteen_rounds() -> None:
    backoff = Backoff(COSTS)
    assert rounds(backoff, size=2, emitted=1, count=4) == [(-0.5, 0), (-1.0, 0), (-1.5, 0), (-2.0, 0)]
    assert rounds(backoff, size=2, emitted=1, count=1) == [(-1.5, 16)]
    assert [left for _, left in rounds(backoff, size=1, emitted=1, count=16)] == list(range(15, -1, -1))
    assert backoff.token_balance == -1.5, "rounds without drafts do not change the balance"


def test_back_off_doubles_until_drafting_pays() -> None:
    backoff = Backoff(COSTS, token_balance=-1.5, length=32)
    assert rounds(backoff, size=2, emitted=1, count=2) == [(-2.0, 0), (-1.5, 32)]
    rounds(backoff, size=1, emitted=1, count=32)
    assert (backoff.rounds_left, backoff.length) == (0, 64)
    assert rounds(backoff, size=3, emitted=3, count=1) == [(-0.5, 0)]
    assert backoff.length == 64, "the balance is still below 0"
    assert rounds(backoff, size=2, emitted=2, count=1) == [(0.0, 0)]
    assert backoff.length == 16


def test_balance_is_at_most_two_tokens() -> None:
    assert rounds(Backoff(COSTS), size=3, emitted=8, count=2) == [(2.0, 0), (2.0, 0)]


def test_round_cost_is_counted_in_tokens_of_plain_decoding() -> None:
    state = AutoBudget(RoundCost((0, 2), (5.0, 8.0), baseline_ms=4.0)).start(2)
    assert [backoff.round_cost_in_tokens for backoff in state.backoffs] == [[1.25, 1.625, 2.0]] * 2


def test_a_row_that_backs_off_verifies_only_its_root() -> None:
    logits = 2 * torch.randn(3, 4, 11, generator=torch.Generator().manual_seed(1))
    tree = build_tree(logits, torch.tensor([1, 2, 3]), budget=8, topk_cap=3)
    state = AutoBudget(COSTLY).start(3)
    awake = state.cut(tree).sizes.tolist()
    assert min(awake) > 1
    state.backoffs[1].rounds_left = 5
    assert state.cut(tree).sizes.tolist() == [awake[0], 1, awake[2]]
    state.select(torch.tensor([1, 2]), [1, 2])
    assert [backoff.rounds_left for backoff in state.backoffs] == [5, 0]
    assert not state.all_back_off
    state.select(torch.tensor([0]), [0])
    assert state.all_back_off


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


def test_drafter_makes_no_pass_while_all_back_off(passes: list[int]) -> None:
    """Rounds 0, 17 and 50 draft: the back-offs between last 16 and 32 rounds, and the third outlasts the answer."""
    answer = decoded(HOPELESS, PROMPTS[:1], [3], tokens=60)[0]
    assert passes == [1] * 3
    assert [number for number, step in enumerate(answer.steps) if step.tree_size > 1] == [0, 17, 50]
    undrafted = [step for number, step in enumerate(answer.steps) if number not in (0, 17, 50)]
    assert all(step.emitted == 1 and step.stage_ms["draft"] == 0 for step in undrafted)


def test_drafter_makes_its_pass_while_one_row_of_the_batch_drafts(passes: list[int]) -> None:
    answers = decoded(COSTLY, PROMPTS, [0, 1, 2])
    longest = max(len(answer.steps) for answer in answers)
    drafting = {n for answer in answers for n, step in enumerate(answer.steps) if step.tree_size > 1}
    assert len(passes) == len(drafting) < longest
    assert any(
        len({answer.steps[n].tree_size > 1 for answer in answers if n < len(answer.steps)}) == 2 for n in drafting
    ), "in some round one row backs off and another drafts"


@pytest.mark.parametrize("shift", [0, 10, 20])
def test_request_backs_off_in_a_batch_as_it_does_alone(shift: int) -> None:
    seeds = [shift + 3, shift + 4, shift + 5]
    together = decoded(COSTLY, PROMPTS, seeds)
    for answer, prompt, seed in zip(together, PROMPTS, seeds, strict=True):
        alone = decoded(COSTLY, [prompt], [seed])[0]
        assert answer.tokens == alone.tokens
        assert shapes(answer) == shapes(alone)
    drafted = [[step.tree_size > 1 for step in answer.steps] for answer in together]
    assert all(any(one[FIRST_BACKOFF:]) and not all(one) for one in drafted), "each backs off and drafts again"


def test_greedy_text_with_back_off_is_plain_text() -> None:
    target = tiny_target(8)
    options = {"sampling": SamplingParams(0.0), "max_new_tokens": 60}
    plain = generate(target, None, PROMPTS, strategy="autoregressive", **options)
    for cost in (COSTLY, HOPELESS):
        trees = generate(target, tiny_drafter(target), PROMPTS, strategy="tree", budget=AutoBudget(cost), **options)
        assert [answer.tokens for answer in trees] == [answer.tokens for answer in plain]
