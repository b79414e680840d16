"""Links reach each node once in sibling order, positions follow depth, and the mask shows ancestors alone."""

import numpy as np
import pytest
import torch
from ddtree.retrieve import RetrieveTables, compile_retrieve, tree_attention_mask, tree_positions, tree_visibility
from ddtree.tree import DraftTree, build_tree
from loops import for_each
from oracles import children_of, lineage, random_trees

A21 = DraftTree.from_parents([[9, 1, 2, 3, 4]], [[-1, 0, 0, 0, 2]], [[0.0, -1.2, -0.3, -2.0, -0.5]])
A23 = DraftTree.from_parents([[9, 1, 2, 3, 4]], [[-1, 0, 0, 1, 2]], [[0.0, -1.0, -1.1, -1.2, -1.3]])


def linked_children(tables: RetrieveTables, row: int, node: int) -> list[int]:
    found, child = [], int(tables.next_token[row, node])
    while child != -1:
        found.append(child)
        child = int(tables.next_sibling[row, child])
        assert len(found) <= tables.index.shape[1], "sibling links run in a circle"
    return found


@for_each("seed", range(25))
def test_links_walk_every_tree_as_its_parents_say(seed: int) -> None:
    tree = random_trees(np.random.default_rng(seed), rows=8, most_nodes=17, vocab=40, spare=seed % 3)
    tables = compile_retrieve(tree)
    for row in range(8):
        reached = [0]
        for node in range(tree.width):
            found = linked_children(tables, row, node)
            assert found == children_of(tree, row, node)
            reached += found
        assert sorted(reached) == list(range(int(tree.sizes[row]))), "each node once, and no padding"


def test_links_worked_out_by_hand() -> None:
    tables = compile_retrieve(A21)
    assert tables.next_token.tolist() == [[2, -1, 4, -1, -1]]
    assert tables.next_sibling.tolist() == [[-1, 3, 1, -1, -1]]


def test_index_is_flat_and_tables_are_as_the_op_wants_them() -> None:
    tree = build_tree(torch.randn(3, 2, 6, generator=torch.Generator().manual_seed(0)), torch.arange(3), budget=4)
    tables = compile_retrieve(tree)
    assert tables.index.tolist() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13, 14]]
    for table in (tables.index, tables.next_token, tables.next_sibling):
        assert table.dtype == torch.int64
        assert table.is_contiguous()


def test_equal_weights_keep_array_order() -> None:
    tree = DraftTree.from_parents([[9, 7, 6, 5]], [[-1, 0, 0, 0]], [[0.0, -1.0, -1.0, -1.0]])
    assert linked_children(compile_retrieve(tree), 0, 0) == [1, 2, 3]


def test_root_alone_has_no_links() -> None:
    tables = compile_retrieve(build_tree(torch.zeros(2, 0, 4), torch.tensor([1, 2]), budget=3))
    assert (tables.next_token == -1).all()
    assert (tables.next_sibling == -1).all()


def test_positions_are_prefix_plus_depth() -> None:
    assert tree_positions(A23, torch.tensor([4])).tolist() == [[4, 5, 5, 6, 6]]


@for_each("seed", range(10))
def test_node_sees_itself_and_its_ancestors(seed: int) -> None:
    tree = random_trees(np.random.default_rng(seed), rows=6, most_nodes=12, vocab=30, spare=2)
    visible = tree_visibility(tree)
    for row in range(6):
        parents = tree.parents[row].tolist()
        for node in range(tree.width):
            assert visible[row, node].nonzero()[:, 0].tolist() == lineage(parents, node)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_mask_adds_zero_where_a_node_may_look_and_the_minimum_elsewhere(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(3)
    tree = random_trees(rng, rows=4, most_nodes=9, vocab=30, spare=1)
    prefix_len = torch.tensor([0, 3, 7, 5])
    key_len = 7 + tree.width
    mask = tree_attention_mask(tree, prefix_len, key_len=key_len, dtype=dtype)
    assert mask.shape == (4, 1, tree.width, key_len)
    assert mask.dtype == dtype
    assert set(mask.unique().tolist()) == {0.0, torch.finfo(dtype).min}
    for row in range(4):
        prefix = int(prefix_len[row])
        for node in range(tree.width):
            ancestors = [prefix + a for a in lineage(tree.parents[row].tolist(), node)]
            looked_at = (mask[row, 0, node] == 0).nonzero()[:, 0].tolist()
            assert looked_at == [*range(prefix), *ancestors], "the whole prefix, the lineage, and no other row's rest"
