"""The layout keeps its promises for any tree: order, parents in the middle, nothing on top of anything else."""

import math
from itertools import pairwise

import pytest
from ddtree.workbook.theme import text_width
from ddtree.workbook.tree.plots import GAP, LABEL_OFFSET, fit_layout, tidy_positions
from hypothesis import given
from hypothesis import strategies as st


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[int], list[float], list[float], list[float]]:
    n = draw(st.integers(1, 24))
    parents = [-1, *(draw(st.integers(0, i - 1)) for i in range(1, n))]
    weights = [0.0]
    for i in range(1, n):
        weights.append(weights[parents[i]] - draw(st.integers(0, 5)))
    reaches = st.lists(st.integers(1, 60).map(float), min_size=n, max_size=n)
    return parents, weights, draw(reaches), draw(reaches)


def depths_of(parents: list[int]) -> list[int]:
    depths: list[int] = []
    for parent in parents:
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
    return depths


@given(trees())
def test_no_two_nodes_of_a_depth_touch(tree: tuple[list[int], list[float], list[float], list[float]]) -> None:
    parents, weights, left, right = tree
    x = tidy_positions(parents, weights, left, right)
    depths = depths_of(parents)
    for depth in set(depths):
        row = sorted((i for i in range(len(x)) if depths[i] == depth), key=lambda i: x[i])
        for a, b in pairwise(row):
            assert x[b] - left[b] - (x[a] + right[a]) >= GAP - 1e-6
    assert min(x[i] - left[i] for i in range(len(x))) == pytest.approx(0)


@given(trees())
def test_children_stand_by_weight_and_their_parent_in_the_middle(
    tree: tuple[list[int], list[float], list[float], list[float]],
) -> None:
    parents, weights, left, right = tree
    x = tidy_positions(parents, weights, left, right)
    for node in range(len(parents)):
        children = sorted((i for i, p in enumerate(parents) if p == node), key=lambda i: (-weights[i], i))
        if children:
            places = [x[i] for i in children]
            assert places == sorted(places)
            assert x[node] == pytest.approx((places[0] + places[-1]) / 2)


def test_a_narrow_subtree_moves_in_beside_a_shallow_one() -> None:
    # root -> a, b; a -> a1, a2; b is a leaf: b stands GAP beyond a, not beyond a2.
    x = tidy_positions([-1, 0, 0, 1, 1], [0, -1, -2, -2, -3], [5] * 5, [5] * 5)
    assert x == pytest.approx([19 / 2 + 9.5 + 5, 9.5 + 5, 9.5 + 5 + 19, 5, 24])


def test_all_labels_show_at_full_size_where_there_is_room() -> None:
    layout = fit_layout([-1, 0, 0], [0.0, -1.0, -2.0], ["root", "a", "b"], [20.0, 10.0, 8.0])
    assert layout.labels == ["root", "a", "b"]
    assert (layout.font_size, layout.width) == (12, 300)


def test_a_wider_tree_takes_the_next_page_with_larger_labels() -> None:
    layout = fit_layout([-1, *[0] * 6], [0.0, *[-1.0] * 6], ["token"] * 7, [10.0] * 7)
    assert all(layout.labels)
    assert (layout.font_size, layout.width) == (13, 540)


def test_too_many_labels_shrink_and_then_only_as_many_show_as_fit() -> None:
    n = 51
    weights = [0.0, *(-0.1 * i for i in range(1, n))]
    layout = fit_layout([-1, *[0] * (n - 1)], weights, ["root", *["token"] * (n - 1)], [6.0] * n)
    assert layout.font_size == 9
    spare = 840 - 50 * 6 - 49 * GAP  # one row of 50 bare nodes leaves this for labels
    fitting = math.floor(spare / (LABEL_OFFSET + text_width("token", 9)))
    assert fitting > 0
    assert [i for i in range(1, n) if layout.labels[i]] == list(range(1, fitting + 1))


def test_a_tree_wider_than_a_page_gets_the_width_it_needs() -> None:
    n = 81
    layout = fit_layout([-1, *[0] * (n - 1)], [0.0, *[-1.0] * (n - 1)], ["token"] * n, [6.0] * n)
    assert not any(layout.labels[1:])
    assert layout.width == 80 * 6 + 79 * GAP


def test_the_accepted_path_is_labelled_before_likelier_nodes() -> None:
    n = 50
    parents = [-1, *[0] * (n - 1)]
    weights = [0.0, *(-0.1 * i for i in range(1, n))]
    labels = ["root", *["token"] * (n - 1)]
    plain = fit_layout(parents, weights, labels, [6.0] * n)
    named = fit_layout(parents, weights, labels, [6.0] * n, labelled_first=[0, n - 1])
    assert plain.labels[n - 1] == ""
    assert named.labels[n - 1] == "token"
    assert plain.labels[1] == "token"
    assert sum(map(bool, named.labels)) == sum(map(bool, plain.labels))
