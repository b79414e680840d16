"""Messages as the token ids that every server gets, so that no server's own template can make a difference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ddtree.models.messages import encode_message


def encoded(messages: Sequence[str], target: Path) -> list[list[int]]:
    """One user message each, ready for an answer, through the chat template of the tokenizer in `target`, if any."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(target, local_files_only=True, trust_remote_code=False)
    return [encode_message(tokenizer, message) for message in messages]
