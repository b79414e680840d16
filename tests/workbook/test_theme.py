"""Colours that mean one thing everywhere, and titles that fit a phone."""

import plotly.graph_objects as go
import pytest
from ddtree.workbook.theme import (
    FOOTER_ROOM,
    HEADER_ROOM,
    SUBTITLE_CHARACTERS,
    TITLE_CHARACTERS,
    apply_layout,
    break_lines,
    plotly_text,
    shortened,
    strategy_colour,
    temperature_colour,
    text_width,
    visible_text,
)
from wording import names


def channels(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in range(1, 7, 2)]


def test_strategies_have_three_different_colours_and_no_fourth() -> None:
    assert len({strategy_colour(name) for name in ("autoregressive", "chain", "tree")}) == 3
    with pytest.raises(ValueError, match=names("strategy beam")):
        strategy_colour("beam")


def test_temperatures_between_anchors_blend_their_colours() -> None:
    assert temperature_colour(0.0) == "#009E73"
    assert temperature_colour(1.0) == "#D55E00"
    low, middle, high = (channels(temperature_colour(t)) for t in (0.6, 0.7, 0.8))
    assert middle == [round((a + b) / 2) for a, b in zip(low, high, strict=True)]
    assert temperature_colour(3.0) == temperature_colour(2.0)
    assert len({temperature_colour(t / 20) for t in range(41)}) == 41
    with pytest.raises(ValueError, match=names("temperature -0.1")):
        temperature_colour(-0.1)


@pytest.mark.parametrize("colour", [strategy_colour("tree"), strategy_colour("autoregressive"), temperature_colour(0)])
def test_data_colours_keep_off_the_lightness_of_paper_and_ink(colour: str) -> None:
    lightness = (max(channels(colour)) + min(channels(colour))) / 510
    assert 0.2 < lightness < 0.78


def test_titles_break_into_even_lines_and_keep_a_temperature_whole() -> None:
    title = break_lines("Tree decoding: 2.6x at T = 0, 1.4x at T = 1 and one word", TITLE_CHARACTERS)
    lines = title.split(" <br>")
    assert len(lines) == 2
    assert max(map(len, lines)) <= TITLE_CHARACTERS
    assert " ".join(lines) == "Tree decoding: 2.6x at T = 0, 1.4x at T = 1 and one word"
    assert all(line.count("T =") == line.count("T = 0") + line.count("T = 1") for line in lines)
    assert break_lines("short", SUBTITLE_CHARACTERS) == "short"


def test_height_is_that_of_plot_header_and_footer_and_grows_with_lines() -> None:
    one = apply_layout(go.Figure(), "a", "b", 200)
    two = apply_layout(go.Figure(), "a <br>a", "b <br>b", 200, narrow=False)
    assert one.layout.height == HEADER_ROOM + 200 + FOOTER_ROOM
    assert two.layout.height - one.layout.height == two.layout.margin.t - one.layout.margin.t == 36
    assert one.layout.template.layout.paper_bgcolor == "rgba(0, 0, 0, 0)"
    assert one.layout.template.layout.modebar.bgcolor == "rgba(0, 0, 0, 0)"


def test_whitespace_and_unprintable_characters_can_be_seen() -> None:
    assert visible_text(" the") == "␣the"
    assert visible_text("\n\t") == "⏎⇥"
    assert visible_text("") == "∅"
    assert visible_text("a\x00") == "a\\x00"


def test_markup_and_formulas_are_shown_letter_for_letter() -> None:
    assert plotly_text("<b>&$x$") == "&lt;b&gt;&amp;&#36;x&#36;"


def test_long_texts_end_in_an_ellipsis() -> None:
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdefg", 6) == "abcde…"


def test_wide_glyphs_take_a_whole_em() -> None:
    assert text_width("ab", 10) == pytest.approx(12)
    assert text_width("猫a", 10) == pytest.approx(16)
