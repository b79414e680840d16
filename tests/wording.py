"""What a message must name, apart from how it words it: names and values in their order, each whole."""

import re


def names(words: str) -> str:
    """A regular expression: each of `words`, which spaces part, in this order on one line, with any text between."""
    return ".*".join(map(_whole, words.split()))


def tells(message: object, words: str) -> bool:
    return re.search(names(words), str(message)) is not None


def _whole(word: str) -> str:
    """`word` where it is no part of a longer word or number: 1 stands in "1," and "1×", not in 16, 1.5 or 1,214."""
    before = r"(?<!\w)" if word[0].isalnum() or word[0] == "_" else ""
    after = r"(?!\w)" if word[-1].isalnum() or word[-1] == "_" else ""
    if word[0].isdigit():
        before += r"(?<!\d[.,])"
    if word[-1].isdigit():
        after += r"(?![.,]\d)"
    return before + re.escape(word) + after
