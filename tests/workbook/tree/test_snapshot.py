"""Rounds leave a snapshot as it was, and its round is the one that decoding runs next."""

import pytest
import torch
from ddtree.decode import Step, generate
from ddtree.models.zoo import Pair
from ddtree.sampling import SamplingParams
from ddtree.workbook.tree.snapshot import DecodeSnapshot, Round, snapshot_at
from tiny_pair import tiny_pair

PROMPT = "5 1 3 2 7"
HOT = SamplingParams(1.0)


@pytest.fixture(scope="module")
def pair() -> Pair:
    return tiny_pair()


@pytest.fixture
def snapshot(pair: Pair) -> DecodeSnapshot:
    return snapshot_at(pair, PROMPT, skip_tokens=6, seeds=[3, 4])


def state(snapshot: DecodeSnapshot) -> list[torch.Tensor]:
    """Copies of all that a round could change."""
    session = snapshot.session
    rows = [session.cache.row(b) for b in range(len(snapshot.seeds))]
    return [tensor.clone() for tensor in (session.prefix_len, snapshot.draft_logits, *rows)]


def decided(round_: Round) -> list[torch.Tensor]:
    tree, result, commit = round_.tree, round_.result, round_.commit
    return [
        *(tree.tokens, tree.parents, tree.node_logws, tree.sizes),
        *(round_.logits, round_.coins, round_.final_coins),
        *(result.predict, result.accept_index, result.accept_count),
        *(commit.path, commit.lengths, commit.tokens, commit.next_root, commit.new_len),
    ]


def same(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_scene_is_the_prompt_and_its_greedy_answer(pair: Pair) -> None:
    answer = generate(
        pair.target, None, [PROMPT], strategy="autoregressive", sampling=SamplingParams(0.0), max_new_tokens=6
    )[0].tokens
    snapshot = snapshot_at(pair, PROMPT, skip_tokens=6)
    assert snapshot.tokens == [5, 1, 3, 2, 7, *answer]
    assert snapshot.text == " ".join(map(str, snapshot.tokens))
    assert snapshot.seeds == [0]
    assert snapshot.session.prefix_len.tolist() == [10], "the root has no KV yet"


def test_nothing_skipped_is_the_prompt_alone(pair: Pair) -> None:
    assert snapshot_at(pair, PROMPT, skip_tokens=0).tokens == [5, 1, 3, 2, 7]


def test_end_token_is_not_a_root() -> None:
    plain = snapshot_at(tiny_pair(), PROMPT, skip_tokens=6).tokens
    ended = tiny_pair(eos_ids=[plain[7]])
    assert snapshot_at(ended, PROMPT, skip_tokens=6).tokens == plain[: plain.index(plain[7], 5)]


def test_run_round_leaves_the_snapshot_unchanged_and_repeats_itself(snapshot: DecodeSnapshot) -> None:
    before = state(snapshot)
    first = snapshot.run_round(budget=9, topk_cap=3, sampling=HOT)
    kept = [tensor.clone() for tensor in decided(first)]
    assert same(before, state(snapshot))
    for budget, temperature in ((40, 0.0), (1, 2.0), (0, 1.0)):
        snapshot.run_round(budget=budget, topk_cap=8, sampling=SamplingParams(temperature), draft_temperature=0.5)
        assert same(before, state(snapshot))
    assert same(kept, decided(snapshot.run_round(budget=9, topk_cap=3, sampling=HOT)))
    assert same(kept, decided(first)), "a round that is held does not change either"


@pytest.mark.parametrize("draft_temperature", [1.0, 0.4, "match"])
@pytest.mark.parametrize("sampling", [SamplingParams(0.0), HOT, SamplingParams(0.7, top_k=3)])
def test_round_is_the_one_that_decoding_runs_next(
    snapshot: DecodeSnapshot, sampling: SamplingParams, draft_temperature: float
) -> None:
    steps: list[Step] = []
    generate(
        snapshot.pair.target,
        snapshot.pair.drafter,
        [snapshot.tokens] * 2,
        strategy="tree",
        sampling=sampling,
        max_new_tokens=1,
        budget=7,
        topk_cap=3,
        draft_temperature=draft_temperature,
        seed=[3, 4],
        on_step=steps.append,
    )
    seen = snapshot.run_round(budget=7, topk_cap=3, sampling=sampling, draft_temperature=draft_temperature)
    step = steps[0]
    for name in ("tokens", "parents", "depths", "sizes"):
        assert torch.equal(getattr(seen.tree, name), getattr(step.tree, name))
    for name in ("index", "next_token", "next_sibling"):
        assert torch.equal(getattr(seen.tables, name), getattr(step.tables, name))
    torch.testing.assert_close(seen.logits, step.logits, rtol=0, atol=1e-4)
    assert torch.equal(seen.coins, step.coins)
    assert torch.equal(seen.final_coins, step.final_coins)
    for name in ("predict", "accept_index", "accept_count"):
        assert torch.equal(getattr(seen.result, name), getattr(step.result, name))
    assert torch.equal(seen.commit.new_len, step.commit.new_len)


def test_rows_share_the_text_and_differ_in_their_coins(snapshot: DecodeSnapshot, pair: Pair) -> None:
    seen = snapshot.run_round(budget=5, topk_cap=3, sampling=HOT)
    assert torch.equal(seen.tree.tokens[0], seen.tree.tokens[1])
    assert not torch.equal(seen.coins[0], seen.coins[1])
    alone = snapshot_at(pair, PROMPT, skip_tokens=6, seeds=[4]).run_round(budget=5, topk_cap=3, sampling=HOT)
    assert torch.equal(alone.coins[0], seen.coins[1])
    assert alone.commit.tokens[0].tolist() == seen.commit.tokens[1].tolist()


def test_labels_are_one_text_for_each_node(snapshot: DecodeSnapshot) -> None:
    tree = snapshot.run_round(budget=5, topk_cap=3, sampling=HOT).tree
    for row in range(2):
        assert snapshot.labels(tree, row) == [str(token) for token in tree.tokens[row].tolist()]
    assert snapshot.labels(tree)[0] == str(snapshot.tokens[-1])
