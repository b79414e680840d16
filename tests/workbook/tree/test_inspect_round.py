"""The walk told step by step is the reference's walk, and the tables show its numbers."""

import numpy as np
import pandas as pd
import pytest
import torch
from ddtree.commit import plan_commit
from ddtree.retrieve import compile_retrieve
from ddtree.sampling import step_coins
from ddtree.tree import DraftTree
from ddtree.verify import VerifyResult, verify_tree
from ddtree.workbook.tree.inspect_round import buffer_table, commit_table, result_table, walk_table
from loops import for_each
from oracles import children_of, random_trees

VOCAB = 6


@for_each("seed", range(12))
def test_walk_is_the_reference_s_on_random_trees(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = random_trees(rng, rows=8, most_nodes=9, vocab=VOCAB, spare=seed % 3)
    tables = compile_retrieve(tree)
    rows = torch.from_numpy(rng.dirichlet([0.5] * VOCAB, size=(8, tree.width))).float()
    rows[rows < 0.02] = 0.0  # tokens that no coin may accept
    probs = rows / rows.sum(dim=-1, keepdim=True)
    coins, final_coins = step_coins(list(range(8)), [seed] * 8, tree.width)
    result = verify_tree(tree, tables, probs, coins, final_coins, backend="reference")
    commit = plan_commit(tree, result, torch.zeros(8, dtype=torch.int64))
    for b in range(8):
        labels = [f"token {token}" for token in tree.tokens[b, : tree.sizes[b]].tolist()]
        walk = walk_table(tree, tables, probs, coins, final_coins[b].item(), labels, b)
        path = [node for node in commit.path[b].tolist() if node >= 0]
        steps, end = walk.iloc[:-1], walk.iloc[-1]
        assert [0, *steps.loc[steps["decision"] == "accept", "child"]] == path
        assert (end["node"], end["decision"]) == (path[-1], "draw the final token")
        assert end["coin"] == final_coins[b].item()
        assert pd.isna(end["child"])
        assert steps["node"].tolist() == sorted(steps["node"], key=path.index), "node after node, down the path"
        for node in path:
            check_node(steps[steps["node"] == node], tree, probs, coins, labels, b, node)
        offered = sum(float(probs[b, path[-1], tree.tokens[b, c]]) for c in children_of(tree, b, path[-1]))
        assert end["residual"] == pytest.approx(1 - offered, abs=1e-6)


def check_node(
    steps: pd.DataFrame, tree: DraftTree, probs: torch.Tensor, coins: torch.Tensor, labels: list[str], b: int, node: int
) -> None:
    """The children of one node in link order, up to the first accepted."""
    children = children_of(tree, b, node)
    tried = steps["child"].tolist()
    assert tried == children[: len(tried)]
    assert len(tried) == len(children) or steps.iloc[-1]["decision"] == "accept"
    assert (steps["decision"].iloc[:-1] == "reject").all()
    assert (steps["coin"] == coins[b, node].item()).all()
    assert steps["token"].tolist() == [labels[child] for child in tried]
    own = [float(probs[b, node, tree.tokens[b, child]]) for child in tried]
    assert steps["probability"].tolist() == own
    assert steps["running_sum"].tolist() == pytest.approx(np.cumsum(own).tolist(), abs=1e-6)
    assert steps["residual"].tolist() == pytest.approx((1 - np.cumsum(own)).tolist(), abs=1e-6)


def test_walk_by_hand() -> None:
    """Root with children of probability 0.5 and 0.25; the coin 0.625 rejects the first and takes the second."""
    tree = DraftTree.from_parents([[9, 3, 5]], [[-1, 0, 0]], [[0.0, -0.5, -1.0]])
    probs = torch.zeros(1, 3, 10)
    probs[0, 0, 3], probs[0, 0, 5], probs[0, 0, 7] = 0.5, 0.25, 0.25
    probs[0, 1:, 0] = 1.0
    coins = torch.tensor([[0.625, 0.1, 0.2]])
    walk = walk_table(tree, compile_retrieve(tree), probs, coins, 0.75, ["r", "three", "five"])
    told = walk[["node", "coin", "child", "token", "probability", "running_sum", "decision", "residual"]]
    assert told.astype(object).where(told.notna(), None).to_numpy().tolist() == [
        [0, 0.625, 1, "three", 0.5, 0.5, "reject", 0.5],
        [0, 0.625, 2, "five", 0.25, 0.75, "accept", 0.25],
        [2, 0.75, None, None, None, None, "draw the final token", 1.0],
    ]


def test_root_alone_draws_at_once() -> None:
    tree = DraftTree.from_parents([[9]], [[-1]], [[0.0]])
    walk = walk_table(tree, compile_retrieve(tree), torch.full((1, 1, 4), 0.25), torch.tensor([[0.5]]), 0.25, ["r"])
    assert walk.shape == (1, 8)
    assert walk.loc[0, ["node", "coin", "decision", "residual"]].tolist() == [0, 0.25, "draw the final token", 1.0]
    assert walk.loc[walk["decision"] == "accept", "child"].astype(int).tolist() == []


# Tables


@pytest.fixture
def tree() -> DraftTree:
    """Two equal rows: the root's children are 1 and 2, and 3 hangs under 2."""
    return DraftTree.from_parents([[9, 3, 5, 2]] * 2, [[-1, 0, 0, 2]] * 2, [[0.0, -0.5, -1.0, -1.2]] * 2)


@pytest.fixture
def result() -> VerifyResult:
    """Row 0 accepts 2 and 3, then token 7; row 1 accepts nothing, then token 4."""
    return VerifyResult(
        predict=torch.tensor([5, -1, 2, 7, 4, -1, -1, -1], dtype=torch.int32),
        accept_index=torch.tensor([[0, 2, 3], [4, -1, -1]], dtype=torch.int32),
        accept_count=torch.tensor([2, 0], dtype=torch.int32),
    )


def test_commit_table_by_hand(tree: DraftTree, result: VerifyResult) -> None:
    prefix_len = torch.tensor([10, 20])
    labels = [["r", "three", "five", "two"], ["R", "THREE", "FIVE", "TWO"]]
    found = commit_table(tree, result, plan_commit(tree, result, prefix_len), prefix_len, labels)
    expected = pd.DataFrame(
        [
            # request, flat, b*q, node, token, next, written, kept, hidden
            (0, 0, 0, 0, "r", 5, 10, 10, 0),
            (0, 2, 0, 2, "five", 2, 12, 11, 2),
            (0, 3, 0, 3, "two", 7, 13, 12, 3),
            (1, 4, 4, 0, "R", 4, 20, 20, 0),
        ],
        columns=[
            *("request", "flat_index", "minus_b_q", "node", "token", "next_token"),
            *("kv_row_written", "kv_row_kept", "hidden_row"),
        ],
    )
    pd.testing.assert_frame_equal(found, expected)


def test_result_table_shows_predict_where_it_was_written(result: VerifyResult) -> None:
    assert result_table(result).to_dict("list") == {
        "request": [0, 1],
        "accept_count": [2, 0],
        "accept_index": ["[0, 2, 3]", "[4, -1, -1]"],
        "predict": ["{0: 5, 2: 2, 3: 7}", "{0: 4}"],
    }


def test_buffer_table_by_hand() -> None:
    buffers = {"coins": torch.tensor([[0.12345, 0.5], [1.0, 0.0], [0.25, 0.75]]), "index": torch.arange(3).int()}
    assert buffer_table(buffers).to_dict("list") == {
        "buffer": ["coins", "index"],
        "shape": ["[3, 2]", "[3]"],
        "dtype": ["float32", "int32"],
        "first entries": ["[0.123, 0.5, 1.0, 0.0, 0.25]", "[0, 1, 2]"],
    }
