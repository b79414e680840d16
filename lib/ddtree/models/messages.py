"""A user message as the tokens that a model answers: one way for the library's target and for servers."""

from __future__ import annotations

from typing import Any


def encode_message(tokenizer: Any, message: str) -> list[int]:
    """Token ids, ready for an answer, through the tokenizer's chat template if it has one."""
    if tokenizer.chat_template is None:
        return list(tokenizer(message)["input_ids"])
    turns = [{"role": "user", "content": message}]
    return list(tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True)["input_ids"])
