"""Settings from the environment: defaults, ranges, and one meaning for the verify width."""

import pytest
from ddtree.serving.config import Settings, verify_width
from wording import names


def test_unset_variables_take_the_defaults() -> None:
    assert Settings.from_environment({}) == Settings(16, 4, 1.0, backend="auto", attention="auto")


def test_every_variable_is_read() -> None:
    environment = {
        "DDTREE_BUDGET": "31", "DDTREE_TOPK_CAP": "2", "DDTREE_DRAFT_TEMPERATURE": "0.7", "DDTREE_BACKEND": "sgl",
        "DDTREE_ATTENTION": "sglang",
    }  # fmt: skip
    assert Settings.from_environment(environment) == Settings(31, 2, 0.7, "sgl", "sglang")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("DDTREE_BUDGET", "0", "DDTREE_BUDGET 0 1"),
        ("DDTREE_BUDGET", "many", "DDTREE_BUDGET many"),
        ("DDTREE_BUDGET", "16.5", "DDTREE_BUDGET 16.5"),
        ("DDTREE_TOPK_CAP", "0", "DDTREE_TOPK_CAP 0 1"),
        ("DDTREE_DRAFT_TEMPERATURE", "0", "DDTREE_DRAFT_TEMPERATURE 0"),
        ("DDTREE_DRAFT_TEMPERATURE", "nan", "DDTREE_DRAFT_TEMPERATURE nan"),
        ("DDTREE_BACKEND", "greedy", "DDTREE_BACKEND greedy auto fused sgl reference"),
        ("DDTREE_ATTENTION", "flash", "DDTREE_ATTENTION flash auto tree sglang"),
    ],
)
def test_a_value_without_sense_is_refused(name: str, value: str, told: str) -> None:
    with pytest.raises(ValueError, match=names(told)):
        Settings.from_environment({name: value})


def test_the_verify_width_is_budget_and_root() -> None:
    assert verify_width(Settings(budget=16), {}, None) == 17
    assert verify_width(Settings(), {}, 33) == 33, "the argument alone says it too"
    assert verify_width(Settings(budget=32), {"DDTREE_BUDGET": "32"}, 33) == 33


def test_two_widths_that_disagree_are_refused() -> None:
    with pytest.raises(ValueError, match=names("draft-tokens 32 17")):
        verify_width(Settings(budget=16), {"DDTREE_BUDGET": "16"}, 32)
    with pytest.raises(ValueError, match=names("draft-tokens 1 2")):
        verify_width(Settings(), {}, 1)
