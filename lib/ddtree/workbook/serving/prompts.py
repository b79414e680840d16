"""Messages as the token ids that every server gets, so that no server's own template can make a difference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def encoded(messages: Sequence[str], target: Path) -> list[list[int]]:
    """One user message each, ready for an answer, through the chat template of the tokenizer in `target`, if any."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(target, local_files_only=True, trust_remote_code=False)
    return [_encode(tokenizer, message) for message in messages]


def _encode(tokenizer: Any, message: str) -> list[int]:
    if tokenizer.chat_template is None:
        return list(tokenizer(message)["input_ids"])
    turns = [{"role": "user", "content": message}]
    return list(tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True)["input_ids"])
