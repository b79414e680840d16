"""What a message must name, apart from how it words it: names and values in their order, each whole."""

import re


def names(words: str) -> str:
    """A regular expression: each of `words`, which spaces part, in this order on one line, with any text between."""
    return ".*".join(map(_whole, words.split()))


def tells(message: object, words: str) -> bool:
    """Whether a line of `message` has `words` as `names` says; in time that grows with its length alone."""
    return any(_in_order(line, words.split()) for line in str(message).splitlines())


def banner(report: str) -> str:
    """What the head of a report says of a run that failed. Raises AssertionError for a report of another run."""
    found = re.search(r'<div class="banner failed"[^>]*>(.*?)</div>', report, re.DOTALL)
    assert found, "no failure is reported"
    return " ".join(found[1].split())


def _in_order(line: str, words: list[str]) -> bool:
    place = 0
    for word in words:
        found = re.compile(_whole(word)).search(line, place)
        if found is None:
            return False
        place = found.end()
    return True


def _whole(word: str) -> str:
    """`word` where it is no part of a longer word or number: 1 stands in "1," and "1×", not in 16, 1.5 or 1,214."""
    before = r"(?<!\w)" if word[0].isalnum() or word[0] == "_" else ""
    after = r"(?!\w)" if word[-1].isalnum() or word[-1] == "_" else ""
    if word[0].isdigit():
        before += r"(?<!\d[.,])"
    if word[-1].isdigit():
        after += r"(?![.,]\d)"
    return before + re.escape(word) + after
