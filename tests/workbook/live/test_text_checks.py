"""Checks on text: gaps counted in units in the last place, differences found where they are, samples compared."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from ddtree.decode import Generation, generate
from ddtree.models.zoo import Pair
from ddtree.sampling import SamplingParams
from ddtree.workbook.live import text_checks
from ddtree.workbook.live.text_checks import distinct_texts, diversity, greedy_regression, logit_gap_ulp
from tiny_pair import tiny_pair

PROMPTS = ["5 1 3 2 7", "6", "4 4"]
SETTINGS = {"max_new_tokens": 12, "budget": 6, "topk_cap": 3}


@pytest.fixture(scope="module")
def pair() -> Pair:
    return tiny_pair()


def scoring(logits: Sequence[float], dtype: torch.dtype, context: Sequence[int] = (4, 2)) -> Pair:
    """A pair whose target gives `logits` after `context`, and nothing that could be compared elsewhere."""

    def forward(input_ids: torch.Tensor, use_cache: bool) -> SimpleNamespace:
        assert input_ids.tolist() == [list(context)]
        rows = torch.full((1, len(context), len(logits)), torch.nan, dtype=dtype)
        rows[0, -1] = torch.tensor(logits, dtype=dtype)
        return SimpleNamespace(logits=rows)

    forward.dtype = dtype  # type: ignore[attr-defined]
    return Pair(SimpleNamespace(model=forward, device=torch.device("cpu")), None, {})  # type: ignore[arg-type]


# Units in the last place: bfloat16 has 7 bits after the leading one, float32 has 23.


@pytest.mark.parametrize(
    ("first", "second", "dtype", "ulp"),
    [
        (8.0, 8.0, torch.bfloat16, 0),
        (8.0, 8.0625, torch.bfloat16, 1),  # 8 * 2**-7
        (8.125, 8.0, torch.bfloat16, 2),
        (15.9375, 15.8125, torch.bfloat16, 2),  # up to 16 the unit is that of 8
        (16.0, 16.125, torch.bfloat16, 1),
        (3.96875, 4.0, torch.bfloat16, 1),  # the larger one's unit
        (-8.0, -8.125, torch.bfloat16, 2),
        (-0.5, 0.5, torch.bfloat16, 256),
        (1.0, 1.0 + 2**-23, torch.float32, 1),
        (20.0, 20.0 + 3 * 2**-19, torch.float32, 3),
        (1.0, 1.0 + 2**-10, torch.float16, 1),
        (0.0, 0.0, torch.bfloat16, 0),
    ],
)
def test_gap_in_units_in_the_last_place(first: float, second: float, dtype: torch.dtype, ulp: float) -> None:
    pair = scoring([99.0, first, -99.0, second], dtype)
    assert logit_gap_ulp(pair, [4, 2], 1, 3) == pytest.approx(ulp)
    assert logit_gap_ulp(pair, [4, 2], 3, 1) == pytest.approx(ulp)


# Greedy text


def test_greedy_text_of_a_right_decoder_is_equal(pair: Pair) -> None:
    found = greedy_regression(pair, PROMPTS, **SETTINGS)
    assert found.columns.tolist() == ["prompt", "strategy", "tokens", "equal", "first_difference", "gap_ulp"]
    assert list(zip(found["prompt"], found["strategy"], strict=True)) == [
        (prompt, strategy) for prompt in range(3) for strategy in ("chain", "tree")
    ]
    assert found["equal"].all()
    assert found["tokens"].tolist() == [12] * 6
    assert found["first_difference"].isna().all()
    assert found["gap_ulp"].isna().all()


def test_no_prompts_are_a_table_without_rows(pair: Pair) -> None:
    found = greedy_regression(pair, [], **SETTINGS)
    assert len(found) == 0
    assert {"equal", "first_difference", "gap_ulp"} <= set(found.columns)


@pytest.mark.parametrize("where", [0, 7, 11])
def test_first_difference_is_found_and_weighed(pair: Pair, where: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def change(answer: Generation) -> None:
        for place in range(where, 12, 4):  # later differences follow from the first
            answer.tokens[place] = (answer.tokens[place] + 1) % 8

    spoil_trees(monkeypatch, change)
    found = greedy_regression(pair, PROMPTS[:1], **SETTINGS).set_index("strategy")
    assert found.loc["chain", "equal"]
    assert not found.loc["tree", "equal"]
    assert found.loc["tree", "first_difference"] == where
    assert found.loc["tree", "gap_ulp"] == pytest.approx(gap_by_hand(pair, where), rel=1e-3)


def test_text_that_ends_early_differs_where_it_ends(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no second token whose logit could be compared."""
    spoil_trees(monkeypatch, lambda answer: answer.tokens.__delitem__(slice(9, None)))
    found = greedy_regression(pair, PROMPTS[:1], **SETTINGS).set_index("strategy")
    assert not found.loc["tree", "equal"]
    assert found.loc["tree", "first_difference"] == 9
    assert pd.isna(found.loc["tree", "gap_ulp"])


def test_text_that_goes_on_too_long_differs_where_it_should_end(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil_trees(monkeypatch, lambda answer: answer.tokens.append(3))
    found = greedy_regression(pair, PROMPTS[:1], **SETTINGS).set_index("strategy")
    assert found.loc["tree", "first_difference"] == 12
    assert found["equal"].tolist() == [True, False]


def spoil_trees(monkeypatch: pytest.MonkeyPatch, change: Callable[[Generation], object]) -> None:
    """Let `change` alter what the strategy "tree" answers."""

    def spoiled(*arguments: object, **options: object) -> list[Generation]:
        done = generate(*arguments, **options)
        if options["strategy"] == "tree":
            for answer in done:
                change(answer)
        return done

    monkeypatch.setattr(text_checks, "generate", spoiled)


def gap_by_hand(pair: Pair, where: int) -> float:
    """The logits of the right token and of the next id after the text before `where`, in units of 2**-23."""
    text = pair.target.encode(PROMPTS[0])
    for _ in range(where + 1):
        with torch.inference_mode():
            logits = pair.target.model(input_ids=torch.tensor([text]), use_cache=False).logits[0, -1].double()
        text.append(int(logits.argmax()))
    right, wrong = logits[text[-1]].item(), logits[(text[-1] + 1) % 8].item()
    unit = 2.0**-23
    while unit * 2**24 <= max(abs(right), abs(wrong)):
        unit *= 2
    while unit * 2**23 > max(abs(right), abs(wrong)):
        unit /= 2
    return abs(right - wrong) / unit


# Samples


def test_greedy_samples_are_one_text_and_hot_ones_several(pair: Pair) -> None:
    texts = diversity(pair, "5 1 3", temperatures=[0.0, 1.0], samples=4, seed=20, **SETTINGS)
    assert list(zip(texts["temperature"], texts["sample"], strict=True)) == [
        (temperature, sample) for temperature in (0.0, 1.0) for sample in range(4)
    ]
    assert distinct_texts(texts) == {0.0: 1, 1.0: 4}


def test_each_sample_is_the_answer_to_its_own_seed(pair: Pair) -> None:
    texts = diversity(pair, "5 1 3", temperatures=[1.0], samples=3, seed=20, **SETTINGS)["text"]
    for sample, text in enumerate(texts):
        alone = generate(
            pair.target,
            pair.drafter,
            ["5 1 3"],
            strategy="tree",
            sampling=SamplingParams(),
            seed=20 + sample,
            **SETTINGS,
        )
        assert text == alone[0].text


def test_distinct_texts_by_hand() -> None:
    texts = pd.DataFrame({"temperature": [0, 0, 0, 0.6, 0.6, 0.6], "text": ["a", "a", "a", "b", "a", "b"]})
    assert distinct_texts(texts) == {0.0: 1, 0.6: 2}


def test_no_samples_are_no_rows(pair: Pair) -> None:
    texts = diversity(pair, PROMPTS[0], temperatures=[0.0, 1.0], samples=0, seed=0, **SETTINGS)
    assert texts.empty
    assert distinct_texts(texts) == {}
