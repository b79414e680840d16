"""What 01_tree shows of a snapshot, against values worked out by hand."""

import html
from types import SimpleNamespace

import plotly.graph_objects as go
import pytest
import torch
from ddtree.tree import DraftTree
from ddtree.workbook.report.html import figure_view
from ddtree.workbook.tree.inspect_round import draft_table, draw_round
from ddtree.workbook.tree.snapshot import DecodeSnapshot
from tiny_pair import Tokenizer
from wording import tells

DRAFT_PROBS = [[0.02, 0.01, 0.02, 0.6, 0.3, 0.05], [0.12, 0.02, 0.03, 0.05, 0.08, 0.7]]


def snapshot(**greedy: int) -> DecodeSnapshot:
    """A snapshot without models: two positions drafted, and a target that wants token `greedy["n3"]` after token 3."""

    def verify(tree: DraftTree) -> torch.Tensor:
        logits = torch.zeros(1, tree.width, 6)
        for node, token in enumerate(tree.tokens[0].tolist()):
            logits[0, node, greedy.get(f"n{token}", 0)] = 5.0
        return logits

    return DecodeSnapshot(
        pair=SimpleNamespace(target=SimpleNamespace(tokenizer=Tokenizer())),  # type: ignore[arg-type]
        tokens=[4, 2],
        session=SimpleNamespace(verify=verify, prefix_len=torch.tensor([1])),  # type: ignore[arg-type]
        draft_logits=torch.tensor([DRAFT_PROBS]).log(),
        seeds=[0],
    )


def title(figure: go.Figure) -> str:
    return figure.layout.title.text.replace(" <br>", " ")


def draw(seen: DecodeSnapshot, budget: int = 4, **options: float) -> go.Figure:
    values = {"topk_cap": 2, "temperature": 0.0, "draft_temperature": 1.0} | options
    return draw_round(seen, budget=budget, **values)


def test_draft_table_by_hand() -> None:
    table = draft_table(snapshot(), top=2)
    assert table.index.name == "depth"
    assert table.to_dict("index") == {
        1: {"rank 0": "'3' 0.60", "rank 1": "'4' 0.30"},
        2: {"rank 0": "'5' 0.70", "rank 1": "'0' 0.12"},
    }


def test_draft_table_shows_the_top_four() -> None:
    table = draft_table(snapshot())
    assert table.columns.tolist() == ["rank 0", "rank 1", "rank 2", "rank 3"]
    assert table.loc[1, "rank 2"] == "'5' 0.05"


@pytest.mark.parametrize(
    ("wants", "expected"),
    [
        ({"n2": 4, "n4": 1}, "4 1 T = 0 1"),
        ({"n2": 3, "n3": 5, "n5": 2}, "4 2 T = 0 2"),
        ({"n2": 1}, "4 0 T = 0 1"),
    ],
)
def test_title_says_what_happened(wants: dict[str, int], expected: str) -> None:
    assert tells(title(draw(snapshot(**wants))), expected)


@pytest.mark.parametrize("token", ["<b>", "</b>", "&lt;", "$x$", "a & b", "<br>", "<a href='x'>"])
def test_final_token_shows_letter_for_letter(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In plotly, which reads tags and entities, and in the report's caption, which is HTML."""
    monkeypatch.setattr(Tokenizer, "decode", lambda self, tokens, **_: token)
    figure = draw(snapshot(n2=1))
    text = figure.layout.title.text
    assert "<" not in text
    assert html.unescape(text).endswith(repr(token))
    caption = str(figure_view(figure.to_plotly_json()).caption).partition("<small>")[0]
    assert "<" not in caption
    assert html.unescape(caption).endswith(repr(token))


def test_title_shows_temperature_and_budget_of_the_round() -> None:
    assert tells(title(draw(snapshot(n2=1), budget=2, temperature=0.6)), "2")
    assert tells(title(draw(snapshot(n2=1), temperature=0.6)), "T = 0.6")
    assert tells(title(draw(snapshot(n2=1), budget=0)), "0 0 T = 0 1")


def test_accepted_path_is_in_colour() -> None:
    """Tree: 3, 3-5, 4, 4-5. The target takes 4 and then 5."""
    traces = {trace.name: trace for trace in draw(snapshot(n2=4, n4=5, n5=0)).data if trace.mode == "markers"}
    tokens = {name: [point[2] for point in trace.customdata] for name, trace in traces.items()}
    assert {name: sorted(found) for name, found in tokens.items()} == {
        "last committed token": [2],
        "drafted": [3, 5],
        "accepted": [4, 5],
    }
