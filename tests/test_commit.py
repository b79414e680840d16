"""A round's path is the flat index minus b*q, and its tokens end at the first EOS or the limit."""

import numpy as np
import pytest
import torch
from ddtree.commit import finish_step, plan_commit
from ddtree.retrieve import compile_retrieve
from ddtree.tree import DraftTree
from ddtree.verify import VerifyResult, verify_tree_greedy
from loops import for_each
from oracles import emitted, lineage, random_trees


def test_plan_worked_out_by_hand() -> None:
    tree = DraftTree.from_parents([[9, 3, 5, 2]] * 3, [[-1, 0, 0, 1]] * 3, [[0.0, -0.5, -1.0, -0.9]] * 3)
    result = VerifyResult(
        predict=torch.tensor([3, 2, -1, 8, 5, -1, 1, -1, 6, -1, -1, -1], dtype=torch.int32),
        accept_index=torch.tensor([[0, 1, 3], [4, 6, -1], [8, -1, -1]], dtype=torch.int32),
        accept_count=torch.tensor([2, 1, 0], dtype=torch.int32),
    )
    commit = plan_commit(tree, result, torch.tensor([10, 20, 30]))
    assert commit.path.tolist() == [[0, 1, 3], [0, 2, -1], [0, -1, -1]]
    assert commit.lengths.tolist() == [3, 2, 1]
    assert commit.tokens.tolist() == [[3, 2, 8], [5, 1, -1], [6, -1, -1]]
    assert commit.next_root.tolist() == [8, 1, 6]
    assert commit.new_len.tolist() == [13, 22, 31]
    fields = (commit.path, commit.lengths, commit.tokens, commit.next_root, commit.new_len)
    assert all(field.dtype == torch.int64 for field in fields)


def test_last_row_without_drafts_does_not_read_its_neighbour() -> None:
    """The padding -1 of a row must not be read as the last element of `predict`."""
    tree = DraftTree.from_parents([[1, 2]] * 2, [[-1, 0]] * 2, [[0.0, -1.0]] * 2)
    result = verify_tree_greedy(tree, compile_retrieve(tree), torch.tensor([[7, 0], [2, 6]]))
    commit = plan_commit(tree, result, torch.tensor([0, 0]))
    assert commit.tokens.tolist() == [[7, -1], [2, 6]]
    assert commit.next_root.tolist() == [7, 6]


@for_each("seed", range(5))
def test_path_is_a_lineage_and_tokens_are_what_was_emitted(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = random_trees(rng, rows=12, most_nodes=14, vocab=3, spare=1)
    argmax = torch.tensor(rng.integers(3, size=(12, tree.width)))
    result = verify_tree_greedy(tree, compile_retrieve(tree), argmax)
    prefix_len = torch.tensor(rng.integers(50, size=12))
    commit = plan_commit(tree, result, prefix_len)
    for row, tokens in enumerate(emitted(result, tree.width)):
        length = int(commit.lengths[row])
        path = commit.path[row, :length].tolist()
        assert path == lineage(tree.parents[row].tolist(), path[-1])
        assert commit.path[row, length:].eq(-1).all()
        assert commit.tokens[row].tolist() == [*tokens, *[-1] * (tree.max_depth + 1 - length)]
        assert tree.tokens[row, path[1:]].tolist() == list(tokens[:-1])
        assert int(commit.next_root[row]) == tokens[-1]
        assert int(commit.new_len[row]) == int(prefix_len[row]) + length == int(prefix_len[row]) + len(tokens)


@pytest.mark.parametrize(
    ("tokens", "remaining", "kept", "reason"),
    [
        pytest.param([4, 5, 6], 10, [4, 5, 6], None, id="goes on"),
        pytest.param([4, 2, 6], 10, [4, 2], "eos", id="EOS inside"),
        pytest.param([2], 10, [2], "eos", id="EOS alone"),
        pytest.param([4, 7, 2], 10, [4, 7], "eos", id="first of two EOS ids"),
        pytest.param([4, 5, 2], 3, [4, 5, 2], "eos", id="EOS at the limit"),
        pytest.param([4, 5, 6, 2], 3, [4, 5, 6], "length", id="EOS after the limit"),
        pytest.param([4, 5, 6], 3, [4, 5, 6], "length", id="limit met"),
        pytest.param([1, 3, 4, 5, 6, 8], 3, [1, 3, 4], "length", id="five drafts and a final token count three"),
    ],
)
def test_step_is_cut_where_the_text_ends(tokens: list[int], remaining: int, kept: list[int], reason: str) -> None:
    assert finish_step(tokens, eos_ids={2, 7}, remaining=remaining) == (kept, reason)


def test_step_leaves_its_argument_as_it_was() -> None:
    tokens = [4, 5, 6]
    finish_step(tokens, eos_ids=(), remaining=2)
    assert tokens == [4, 5, 6]
