"""Tree figures show the tree's own numbers: places, sizes, links, visibility."""

import math

import plotly.graph_objects as go
import pytest
import torch
from ddtree.retrieve import compile_retrieve, tree_attention_mask, tree_visibility
from ddtree.tree import DraftTree, build_tree
from ddtree.workbook.tree.plots import draw_links, draw_mask, draw_tree, tree_table
from wording import names, tells

# Row 1:        0 "A"
#         2 " the"    1 "\n"        (2 is the likelier child)
#         3 "<b>"
PARENTS = [-1, 0, 0, 2]
PROBABILITIES = [1.0, 0.2, 0.5, 0.25]
LABELS = ["A", "\n", " the", "<b>"]


@pytest.fixture
def tree() -> DraftTree:
    return DraftTree.from_parents(
        tokens=[[7], [7, 10, 11, 12]],
        parents=[[-1], PARENTS],
        node_logws=[[0.0], [math.log(p) for p in PROBABILITIES]],
        width=5,
    )


def marks(figure: go.Figure) -> dict[int, tuple[str, float, float, float, list[object]]]:
    """Node: legend name, x, y, diameter, hover data."""
    return {
        data[1]: (trace.name, x, y, size, data)
        for trace in figure.data
        if trace.mode == "markers"
        for x, y, size, data in zip(trace.x, trace.y, trace.marker.size, trace.customdata, strict=True)
    }


def pieces(trace: go.Scatter) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Both ends of each curve of a line trace."""
    found, start = [], 0
    for i, x in enumerate(trace.x):
        if x is None:
            found.append(((trace.x[start], trace.y[start]), (trace.x[i - 1], trace.y[i - 1])))
            start = i + 1
    return found


def test_each_node_stands_at_its_depth_and_padding_nowhere(tree: DraftTree) -> None:
    nodes = marks(draw_tree(tree, 1, labels=LABELS, title="t"))
    assert sorted(nodes) == [0, 1, 2, 3]
    assert [nodes[i][2] for i in range(4)] == [0, 1, 1, 2]
    assert nodes[2][1] < nodes[1][1]  # the likelier sibling at the left
    assert nodes[0][1] == pytest.approx((nodes[1][1] + nodes[2][1]) / 2)


def test_area_grows_with_probability_and_the_root_is_largest(tree: DraftTree) -> None:
    nodes = marks(draw_tree(tree, 1, labels=LABELS, title="t"))
    assert [nodes[i][3] for i in range(4)] == pytest.approx([6 + 20 * math.sqrt(p) for p in PROBABILITIES])


def test_pointing_at_a_node_tells_all_about_it(tree: DraftTree) -> None:
    nodes = marks(draw_tree(tree, 1, labels=LABELS, title="t"))
    assert nodes[3][4][:5] == ["&lt;b&gt;", 3, 12, 2, 2]
    assert nodes[3][4][5:] == pytest.approx([0.25, 0.5])
    assert nodes[0][4][4:] == ["none", 1.0, 1.0]


def test_labels_stand_at_their_nodes_with_whitespace_to_be_seen(tree: DraftTree) -> None:
    figure = draw_tree(tree, 1, labels=LABELS, title="t")
    nodes = marks(figure)
    assert [a.text for a in figure.layout.annotations] == ["A", "⏎", "␣the", "&lt;b&gt;"]
    assert [(a.x, a.y) for a in figure.layout.annotations] == [nodes[i][1:3] for i in range(4)]


def test_accepted_path_has_its_own_thicker_edges_and_the_rest_theirs(tree: DraftTree) -> None:
    figure = draw_tree(tree, 1, labels=LABELS, path=[0, 2, 3, -1], title="3 drafts, 2 accepted")
    nodes = marks(figure)
    place = {i: nodes[i][1:3] for i in nodes}
    drafted, accepted = (trace for trace in figure.data if trace.mode == "lines")
    assert pieces(drafted) == [(place[0], place[1])]
    assert pieces(accepted) == [(place[0], place[2]), (place[2], place[3])]
    assert accepted.line.width > drafted.line.width
    assert accepted.line.color != drafted.line.color
    assert [nodes[i][0] for i in range(4)] == ["last committed token", "drafted", "accepted", "accepted"]
    assert tells(figure.layout.title.text, "3 2")


def test_a_root_alone_is_a_figure_too(tree: DraftTree) -> None:
    assert list(marks(draw_tree(tree, 0, labels=["A"], title="t"))) == [0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"row": 2}, "row 2 0..1"),
        ({"labels": LABELS[:3]}, "labels 3 row 1 4"),
        ({"path": [2, 3]}, "root"),
        ({"path": [0, 3]}, "node 3 node 0"),
        ({"path": [0, 9]}, "node 9 node 0"),
    ],
)
def test_what_does_not_fit_the_tree_is_refused(tree: DraftTree, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=names(message)):
        draw_tree(**{"tree": tree, "row": 1, "labels": LABELS, "title": "t", **arguments})


def test_links_are_those_of_the_tables_and_labels_are_numbered(tree: DraftTree) -> None:
    figure = draw_links(tree, compile_retrieve(tree), 1, labels=LABELS, title="t")
    place = {i: values[1:3] for i, values in marks(figure).items()}
    children, siblings = (trace for trace in figure.data if trace.mode == "lines")
    assert pieces(children) == [(place[0], place[2]), (place[2], place[3])]
    [(start, end)] = pieces(siblings)
    assert start == pytest.approx(place[2])
    assert end == pytest.approx(place[1])
    assert [a.text for a in figure.layout.annotations] == ["0 A", "1 ⏎", "2 ␣the", "3 &lt;b&gt;"]


def test_the_table_holds_links_and_probabilities(tree: DraftTree) -> None:
    table = tree_table(tree, compile_retrieve(tree), LABELS, 1)
    assert list(table["node"]) == [0, 1, 2, 3]
    assert list(table["token"]) == ["A", "⏎", "␣the", "<b>"]
    assert list(table["parent"]) == PARENTS
    assert list(table["depth"]) == [0, 1, 1, 2]
    assert list(table["first child"]) == [2, -1, 3, -1]
    assert list(table["next sibling"]) == [-1, -1, 1, -1]
    assert list(table["probability"]) == pytest.approx(PROBABILITIES)
    assert list(table["log-weight"]) == pytest.approx([math.log(p) for p in PROBABILITIES])


EXPECTED_MASK = [[1, 1, 2, 0, 0, 0], [1, 1, 2, 2, 0, 0], [1, 1, 2, 0, 2, 0], [1, 1, 2, 0, 2, 2]]


def test_mask_shows_prefix_and_ancestors_without_padding(tree: DraftTree) -> None:
    mask = tree_attention_mask(tree, torch.tensor([9, 9]), key_len=14, dtype=torch.float32)[1, 0, :, -7:]
    figure = draw_mask(mask, tree, 1, labels=LABELS, prefix_labels=[" x", "y"])
    assert [list(line) for line in figure.data[0].z] == EXPECTED_MASK
    columns = ["␣x", "y", "0 A", "1 ⏎", "2 ␣the", "3 &lt;b&gt;"]
    assert list(figure.layout.xaxis.ticktext) == columns
    assert list(figure.layout.yaxis.ticktext) == columns[2:]
    assert figure.layout.yaxis.scaleanchor == "x"
    assert "50%" in figure.layout.title.text  # 8 of 16 pairs
    assert figure.data[0].customdata[3][3] == "3 &lt;b&gt; does not see 1 ⏎"


def test_a_boolean_mask_means_the_same(tree: DraftTree) -> None:
    seen = torch.cat([torch.ones(5, 2, dtype=torch.bool), tree_visibility(tree)[1]], dim=1)
    figure = draw_mask(seen, tree, 1, labels=LABELS)
    assert [list(line) for line in figure.data[0].z] == EXPECTED_MASK
    assert list(figure.layout.xaxis.ticktext)[:2] == ["prefix -2", "prefix -1"]


def test_a_mask_of_ones_and_zeros_or_of_another_size_is_refused(tree: DraftTree) -> None:
    with pytest.raises(ValueError, match=names("float 0")):
        draw_mask(tree_visibility(tree)[1].float(), tree, 1, labels=LABELS)
    with pytest.raises(ValueError, match=names("mask [4, 4] [5, shown + 5]")):
        draw_mask(torch.ones(4, 4, dtype=torch.bool), tree, 1, labels=LABELS)
    with pytest.raises(ValueError, match=names("prefix_labels 1 0")):
        draw_mask(tree_visibility(tree)[1], tree, 1, labels=LABELS, prefix_labels=["a"])


@pytest.mark.parametrize("budget", [16, 64])
def test_drawn_trees_of_the_builder_hold_every_node_once(budget: int) -> None:
    logits = torch.randn(1, 7, 200, generator=torch.Generator().manual_seed(0)) * 4
    built = build_tree(logits, torch.tensor([0]), budget=budget)
    figure = draw_tree(built, labels=[f" w{t}" for t in built.tokens[0].tolist()], title="t")
    nodes = marks(figure)
    assert sorted(nodes) == list(range(budget + 1))
    assert len({values[1:3] for values in nodes.values()}) == budget + 1
    assert len(pieces(figure.data[0])) == budget


def test_axis_title_of_a_root_alone_has_room() -> None:
    root = DraftTree.from_parents([[0]], [[-1]], [[0.0]])
    layout = draw_tree(root, labels=[" word"], title="t").layout
    assert layout.height - layout.margin.t - layout.margin.b >= len(layout.yaxis.title.text) * 6


def test_only_a_tree_too_wide_for_a_phone_has_a_width_of_its_own(tree: DraftTree) -> None:
    assert draw_tree(tree, 1, labels=LABELS, title="t").layout.width is None
    wide = DraftTree.from_parents([list(range(20))], [[-1, *[0] * 19]], [[0.0, *[-3.0] * 19]])
    assert draw_tree(wide, labels=[" word"] * 20, title="t").layout.width == 940
