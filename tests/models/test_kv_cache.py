"""Rows of a cache grow, compact and leave like lists of lists would."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from ddtree.models.kv_cache import RowCache
from loops import for_each
from torch import Tensor
from wording import names

LAYERS, HEADS, DIM = 2, 2, 3


@dataclass
class Lists:
    """The oracle: a list of committed numbers a row, and the numbers of the last pass."""

    rows: list[list[int]]
    passed: list[list[int]] = field(default_factory=list)


def states(numbers: list[list[int]], layer: int, part: int) -> Tensor:
    """[bs, heads, n, dim] whose entries tell number, layer, part (key or value), head and dimension apart."""
    n = torch.tensor(numbers, dtype=torch.float64)[:, None, :, None] * 1000
    inner = torch.arange(HEADS)[:, None, None] * 10 + torch.arange(DIM)
    return n + layer * 200 + part * 100 + inner


def append(cache: RowCache, lists: Lists, numbers: list[list[int]]) -> None:
    """One pass; what it returns to attention must hold each row's own keys and values."""
    lists.passed = numbers
    for layer in range(LAYERS):
        seen = cache.update(states(numbers, layer, 0), states(numbers, layer, 1), layer)
        for b, row in enumerate(lists.rows):
            own = [*row, *numbers[b]]
            for part in (0, 1):
                assert torch.equal(seen[part][b : b + 1, :, : len(own)], states([own], layer, part))


def assert_holds(cache: RowCache, lists: Lists) -> None:
    assert cache.lengths.tolist() == [len(row) for row in lists.rows]
    assert cache.longest == cache.get_seq_length() == cache.get_query_offset() == max(map(len, lists.rows))
    assert cache.get_mask_sizes(3) == (cache.longest + 3, 0)
    for b, row in enumerate(lists.rows):
        kept = cache.row(b)
        assert kept.shape == (LAYERS, 2, HEADS, len(row), DIM)
        for layer in range(LAYERS):
            for part in (0, 1):
                assert torch.equal(kept[layer, part][None], states([row], layer, part))


def new(batch_size: int, capacity: int = 60) -> tuple[RowCache, Lists]:
    return RowCache(LAYERS, batch_size, capacity, torch.device("cpu")), Lists([[] for _ in range(batch_size)])


def advance(cache: RowCache, lists: Lists, counts: list[int]) -> None:
    cache.advance(torch.tensor(counts))
    for row, passed, count in zip(lists.rows, lists.passed, counts, strict=True):
        row += passed[:count]


def keep(cache: RowCache, lists: Lists, paths: list[list[int]]) -> None:
    widest = max(map(len, paths))
    padded = torch.tensor([[*path, *[-1] * (widest - len(path))] for path in paths])
    cache.keep(padded, torch.tensor([len(path) for path in paths]))
    for row, passed, path in zip(lists.rows, lists.passed, paths, strict=True):
        row += [passed[node] for node in path]


@for_each("seed", range(12))
@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_random_life_equals_lists(batch_size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cache, lists = new(batch_size)
    fresh = iter(range(1, 10_000))
    for _ in range(7):
        bs, n = len(lists.rows), int(rng.integers(1, 7))
        append(cache, lists, [[next(fresh) for _ in range(n)] for _ in range(bs)])
        if rng.random() < 0.4:
            advance(cache, lists, rng.integers(0, n + 1, size=bs).tolist())
        else:
            paths = [[0, *sorted(rng.choice(np.arange(1, n), rng.integers(n), replace=False))] for _ in range(bs)]
            keep(cache, lists, [[int(node) for node in path] for path in paths])
        assert_holds(cache, lists)
        if len(lists.rows) > 1 and rng.random() < 0.3:
            rows = sorted(rng.choice(len(lists.rows), len(lists.rows) - 1, replace=False).tolist())
            cache.select(torch.tensor(rows))
            lists.rows = [lists.rows[row] for row in rows]
            assert_holds(cache, lists)


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("path", [[0, 2, 3], [0, 1, 2, 3], [0, 3], [0], [0, 1, 3], [0, 2, 4]])
def test_slot_may_be_source_and_destination(path: list[int], batch_size: int) -> None:
    cache, lists = new(batch_size)
    append(cache, lists, [[100 * b + i for i in range(4)] for b in range(batch_size)])
    advance(cache, lists, [1 + b for b in range(batch_size)])
    append(cache, lists, [[1000 * (b + 1) + i for i in range(5)] for b in range(batch_size)])
    keep(cache, lists, [path if b == 0 else [0, 2, 3] for b in range(batch_size)])
    assert_holds(cache, lists)


@pytest.mark.parametrize("batch_size", [1, 2])
def test_path_may_be_padded_beyond_the_pass_and_the_room(batch_size: int) -> None:
    """A tree whose budget is below its depth has paths padded to the depth."""
    cache, lists = new(batch_size, capacity=5)
    append(cache, lists, [[1, 2, 3]] * batch_size)
    advance(cache, lists, [3] * batch_size)
    append(cache, lists, [[4, 5]] * batch_size)
    cache.keep(torch.tensor([[0, 1, -1, -1]] * batch_size), torch.tensor([2] * batch_size))
    lists.rows = [[1, 2, 3, 4, 5]] * batch_size
    assert_holds(cache, lists)


def test_rows_not_committed_are_forgotten() -> None:
    cache, lists = new(2)
    append(cache, lists, [[1, 2], [3, 4]])
    advance(cache, lists, [2, 1])
    append(cache, lists, [[5, 6, 7], [8, 9, 10]])
    append(cache, lists, [[11], [12]])
    advance(cache, lists, [1, 1])
    assert lists.rows == [[1, 2, 11], [3, 12]]
    assert_holds(cache, lists)


def test_select_reorders_and_leaves_the_rest_behind() -> None:
    cache, lists = new(3)
    append(cache, lists, [[1, 2], [3, 4], [5, 6]])
    advance(cache, lists, [2, 0, 1])
    cache.select(torch.tensor([2, 0]))
    lists.rows = [lists.rows[2], lists.rows[0]]
    assert_holds(cache, lists)


def test_what_lies_beyond_a_row_is_never_nan() -> None:
    cache, lists = new(2)
    append(cache, lists, [[1, 2, 3], [4, 5, 6]])
    advance(cache, lists, [3, 0])
    keys, values = cache.update(states([[7], [8]], 0, 0), states([[7], [8]], 0, 1), 0)
    assert keys.shape == values.shape == (2, HEADS, 4, DIM)
    assert keys.isfinite().all()
    assert values.isfinite().all()


@pytest.mark.parametrize("batch_size", [1, 2])
def test_pass_that_does_not_fit_is_refused(batch_size: int) -> None:
    cache, lists = new(batch_size, capacity=5)
    append(cache, lists, [[1, 2, 3]] * batch_size)
    advance(cache, lists, [3] * batch_size)
    append(cache, lists, [[4, 5]] * batch_size)
    with pytest.raises(ValueError, match=names("5 6")):
        append(cache, lists, [[4, 5, 6]] * batch_size)


def test_empty_cache_has_no_rows_to_show() -> None:
    cache, _ = new(2)
    assert cache.get_seq_length() == 0
    with pytest.raises(ValueError, match=names("pass")):
        cache.row(0)
