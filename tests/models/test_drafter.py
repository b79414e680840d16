"""Drafting round by round equals drafting from the whole context at once, whatever stands beside it in the batch."""

import pytest
import torch
from ddtree.models.drafter import Drafter
from tiny import FEATURE_LAYERS, HIDDEN, tiny_drafter, tiny_target
from torch import Tensor
from wording import names

NEAR = {"rtol": 0, "atol": 1e-5}
WIDTH = len(FEATURE_LAYERS) * HIDDEN


@pytest.fixture(autouse=True)
def _no_gradients() -> object:
    with torch.inference_mode():
        yield


@pytest.fixture(scope="module")
def drafter() -> Drafter:
    return tiny_drafter(tiny_target())


def context(seed: int, tokens: int) -> Tensor:
    """Features [tokens, F] such as a target's layers put out."""
    return torch.randn(tokens, WIDTH, generator=torch.Generator().manual_seed(seed))


def padded(rows: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Ragged rows side by side; what fills them up is large, so that reading it shows."""
    lengths = torch.tensor([len(row) for row in rows])
    full = torch.full((len(rows), int(lengths.max()), WIDTH), 50.0)
    for b, row in enumerate(rows):
        full[b, : len(row)] = row
    return full, lengths


def at_once(drafter: Drafter, features: Tensor, root: int, depth: int = 3) -> Tensor:
    lengths = torch.tensor([len(features)])
    return drafter.open(features[None], lengths, room=8).draft(torch.tensor([root]), depth)[0]


@pytest.mark.parametrize("rows", [[0, 1, 2], [1], [2, 0]])
def test_rounds_equal_the_whole_context_at_once(drafter: Drafter, rows: list[int]) -> None:
    starts, rounds = [5, 0, 9], [[1, 4, 2, 1], [3, 1, 1, 4], [2, 2, 4, 3]]
    known = [context(row, starts[row]) for row in rows]
    session = drafter.open(*padded(known), room=40)
    for number in range(5):
        roots = [7 + number + row for row in rows]
        logits = session.draft(torch.tensor(roots), 3)
        assert logits.shape == (len(rows), 3, 64)
        for b, features in enumerate(known):
            torch.testing.assert_close(logits[b], at_once(drafter, features, roots[b]), **NEAR)
        if number < 4:
            new = [context(100 * number + row, rounds[row][number]) for row in rows]
            known = [torch.cat(pair) for pair in zip(known, new, strict=True)]
            session.extend(*padded(new))


@pytest.mark.parametrize("rows", [[0, 1, 2], [1], [2, 0]])
@pytest.mark.parametrize("drafted_first", [True, False])
def test_tokens_of_rounds_without_a_draft_wait_for_the_next(
    drafter: Drafter, rows: list[int], drafted_first: bool
) -> None:
    """A row that grew by few tokens in a round has its next ones right behind them, not behind the fastest row's."""
    starts, rounds = [5, 0, 9], [[1, 4, 2], [3, 1, 1], [2, 2, 4]]
    known = [context(row, starts[row]) for row in rows]
    session = drafter.open(*padded(known), room=12)
    if drafted_first:
        session.draft(torch.tensor(rows), 3)
    for number in range(3):
        new = [context(100 * number + row, rounds[row][number]) for row in rows]
        known = [torch.cat(pair) for pair in zip(known, new, strict=True)]
        session.extend(*padded(new))
    logits = session.draft(torch.tensor(rows), 3)
    for b, features in enumerate(known):
        torch.testing.assert_close(logits[b], at_once(drafter, features, rows[b]), **NEAR)


def test_room_is_enough_after_a_long_rest(drafter: Drafter) -> None:
    """Room for 16: one token a round and row, after a round that brought one row four and the other one."""
    known = [context(0, 3), context(1, 3)]
    session = drafter.open(*padded(known), room=16)
    session.draft(torch.tensor([7, 8]), 3)
    for number, counts in enumerate([(1, 4), *[(1, 1)] * 12]):
        new = [context(10 * number + row, count) for row, count in enumerate(counts)]
        session.extend(*padded(new))
        known = [torch.cat(pair) for pair in zip(known, new, strict=True)]
    logits = session.draft(torch.tensor([7, 8]), 3)
    for b, root in enumerate((7, 8)):
        torch.testing.assert_close(logits[b], at_once(drafter, known[b], root), **NEAR)


def test_features_and_root_and_position_all_matter(drafter: Drafter) -> None:
    features = context(0, 6)
    logits = at_once(drafter, features, 7)
    assert not torch.allclose(at_once(drafter, features, 8), logits, atol=1e-3)
    assert not torch.allclose(at_once(drafter, features[:5], 7), logits, atol=1e-3)
    assert not torch.allclose(at_once(drafter, features.flip(0), 7), logits, atol=1e-3)


def test_block_is_the_root_and_then_masks(drafter: Drafter) -> None:
    seen: list[Tensor] = []
    hook = drafter.embedding.register_forward_hook(lambda _m, args, _out: seen.append(args[0]))
    drafter.open(*padded([context(0, 3), context(1, 1)]), room=8).draft(torch.tensor([7, 9]), 2)
    hook.remove()
    mask = drafter.model.mask_token_id
    assert seen[0].tolist() == [[7, mask, mask, mask], [9, mask, mask, mask]]


def test_shorter_drafts_are_the_beginning_of_longer_ones(drafter: Drafter) -> None:
    features = context(3, 4)
    longest = at_once(drafter, features, 7)
    for depth in range(4):
        torch.testing.assert_close(at_once(drafter, features, 7, depth), longest[:depth], **NEAR)


def test_one_token_prompt_has_no_context(drafter: Drafter) -> None:
    empty, lengths = torch.zeros(1, 0, WIDTH), torch.tensor([0])
    session = drafter.open(empty, lengths, room=8)
    logits = session.draft(torch.tensor([7]), 3)
    assert logits.shape == (1, 3, 64)
    assert logits.isfinite().all()
    block = torch.tensor([[7, 0, 0, 0]])
    by_hand = drafter.model(
        target_hidden=empty, noise_embedding=drafter.embedding(block), position_ids=torch.arange(4)[None]
    )
    torch.testing.assert_close(logits, drafter.output_head(by_hand[:, 1:]), **NEAR)


@pytest.mark.parametrize("kept", [[1], [0, 2], [2, 1]])
@pytest.mark.parametrize("drafted_first", [True, False])
def test_rows_that_go_on_draft_as_before(drafter: Drafter, kept: list[int], drafted_first: bool) -> None:
    known = [context(0, 5), context(1, 2), context(2, 9)]
    session = drafter.open(*padded(known), room=20)
    if drafted_first:
        session.draft(torch.tensor([7, 8, 9]), 3)
        new = [context(10, 4), context(11, 1), context(12, 2)]
        session.extend(*padded(new))
        known = [torch.cat(pair) for pair in zip(known, new, strict=True)]
    session.select(torch.tensor(kept))
    logits = session.draft(torch.tensor(kept), 3)
    for b, row in enumerate(kept):
        torch.testing.assert_close(logits[b], at_once(drafter, known[row], row), **NEAR)


def test_every_row_may_leave(drafter: Drafter) -> None:
    session = drafter.open(*padded([context(0, 5), context(1, 2)]), room=20)
    session.select(torch.zeros(0, dtype=torch.int64))
    assert session.cache.lengths.tolist() == []


def test_room_is_enough_when_a_short_row_catches_up_beside_a_long_one(drafter: Drafter) -> None:
    """Room for 12: a row about to end gets one token in the round that brings its neighbour four."""
    rounds = [(4, 1), (4, 1), (2, 1), (1, 4)]
    known = [context(0, 3), context(1, 3)]
    session = drafter.open(*padded(known), room=12)
    for number, counts in enumerate(rounds):
        session.draft(torch.tensor([7, 8]), 3)
        new = [context(10 * number + row, count) for row, count in enumerate(counts)]
        session.extend(*padded(new))
        known = [torch.cat(pair) for pair in zip(known, new, strict=True)]
    logits = session.draft(torch.tensor([7, 8]), 3)
    for b, root in enumerate((7, 8)):
        torch.testing.assert_close(logits[b], at_once(drafter, known[b], root), **NEAR)


@pytest.mark.parametrize("depth", [4, 7, -1])
def test_depth_beyond_the_block_is_refused(drafter: Drafter, depth: int) -> None:
    assert drafter.depth == 3
    with pytest.raises(ValueError, match=names(f"depth {depth} 4 3")):
        at_once(drafter, context(0, 4), 7, depth)


def test_drafter_without_a_mask_token_is_refused() -> None:
    with pytest.raises(ValueError, match="mask_token_id"):
        tiny_drafter(tiny_target(), mask_token_id=None)
