"""The walk and the last draw on their own: which rows are read, and what rounding may not do."""

import numpy as np
import pytest
import torch
from ddtree.backends import reference
from ddtree.retrieve import compile_retrieve
from ddtree.sampling import NonFiniteLogitsError, SamplingParams
from ddtree.tree import DraftTree
from torch import Tensor
from wording import names

FORK = DraftTree.from_parents([[9, 3, 5, 2]], [[-1, 0, 0, 1]], [[0.0, -0.5, -1.0, -0.9]])
BELOW_ONE = np.nextafter(np.float32(1), np.float32(0))


def walk(rows: dict[int, Tensor], coins: list[float], max_depth: int = 2) -> tuple[reference.Walk, list[int]]:
    tables = compile_retrieve(FORK)
    read: list[int] = []

    def row_of(node: int) -> Tensor:
        read.append(node)
        return rows[node]

    links = (FORK.tokens[0].tolist(), tables.next_token[0].tolist(), tables.next_sibling[0].tolist())
    found = reference.walk_one(*links, row_of, np.array(coins, dtype=np.float32), np.float32(0.5), max_depth)
    return found, read


def one_hot(token: int) -> Tensor:
    return torch.eye(10)[token]


def test_walk_reads_the_rows_of_its_path_alone() -> None:
    found, read = walk({0: one_hot(3), 1: one_hot(2), 3: one_hot(8)}, [0.5, 0.5, 0.5, 0.5])
    assert found == reference.Walk([0, 1, 3], 8)
    assert read == [0, 1, 3]


def test_coin_is_the_one_of_the_node_whose_children_are_checked() -> None:
    half = 0.5 * one_hot(5) + 0.5 * one_hot(3)
    assert walk({0: half, 2: one_hot(1)}, [0.7, 0.0, 0.0, 0.0])[0].path == [0, 2]
    assert walk({0: half, 1: one_hot(1)}, [0.2, 0.9, 0.9, 0.9])[0].path == [0, 1]


def test_coin_equal_to_the_running_sum_goes_on() -> None:
    half = 0.5 * one_hot(5) + 0.5 * one_hot(3)
    assert walk({0: half, 2: one_hot(1)}, [0.5, 0.0, 0.0, 0.0])[0].path == [0, 2]


def test_walk_stops_at_the_depth_the_result_has_room_for() -> None:
    found, _ = walk({0: one_hot(3), 1: one_hot(2)}, [0.5] * 4, max_depth=1)
    assert found == reference.Walk([0, 1], 2), "node 3 holds token 2, but the token is emitted, not the node taken"


@pytest.mark.parametrize(("coin", "token"), [(0.0, 1), (0.24, 1), (0.25, 3), (0.74, 3), (0.75, 4), (BELOW_ONE, 4)])
def test_last_draw_is_inverse_cdf_of_the_rest(coin: float, token: int) -> None:
    row = torch.tensor([0.5, 0.125, 0.0, 0.25, 0.125, 0.0])
    assert reference.sample_residual(row, [0], np.float32(coin)) == token


@pytest.mark.parametrize(("coin", "token"), [(0.0, 1), (0.7, 1), (0.75, 2), (BELOW_ONE, 2)])
def test_last_draw_from_nothing_left_falls_to_the_row_itself(coin: float, token: int) -> None:
    row = torch.tensor([0.0, 0.75, 0.25, 0.0])
    assert reference.sample_residual(row, [1, 2], np.float32(coin)) == token


def test_last_draw_leaves_its_row_as_it_was() -> None:
    row = torch.tensor([0.5, 0.5])
    reference.sample_residual(row, [0], np.float32(0.5))
    assert row.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_sample_names_the_visited_row_that_is_not_finite(temperature: float) -> None:
    tree = DraftTree.from_parents([[9, 3, 5, 2]] * 2, [[-1, 0, 0, 1]] * 2, [[0.0, -0.5, -1.0, -0.9]] * 2)
    logits = torch.zeros(2, 4, 10)
    logits[:, 0, 3] = 100.0
    logits[1, 1, 6] = torch.nan
    coins, finals = torch.full((2, 4), 0.5), torch.full((2,), 0.5)
    with pytest.raises(NonFiniteLogitsError, match=names("request 1 node 1")):
        reference.sample(tree, compile_retrieve(tree), logits, [SamplingParams(temperature)] * 2, coins, finals)
