"""What is asked of which server: prompts as token ids, server names, groups of servers, one timed request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ddtree.workbook.params import ServingParams


def encoded(messages: Sequence[str], target: Path) -> list[list[int]]:
    """One user message each, ready for an answer, through the chat template of the tokenizer in `target`, if any."""
    from transformers import AutoTokenizer

    from ddtree.models.target import encode_chat  # imports transformers

    tokenizer: Any = AutoTokenizer.from_pretrained(target, local_files_only=True, trust_remote_code=False)
    return [encode_chat(tokenizer, message) for message in messages]


Method = Literal["plain", "dflash", "ddtree"]


@dataclass(frozen=True, slots=True)
class Planned:
    """A server to be measured; `budget` and `topk_cap` are None but for DDTREE's."""

    name: str
    method: Method
    budget: int | None
    topk_cap: int | None
    extra_layers: int

    def keys(self) -> dict[str, Any]:
        """What tells its rows of a record from those of others."""
        return {
            "extra_layers": self.extra_layers,
            "name": self.name,
            "method": self.method,
            "budget": self.budget,
        }


def planned(params: ServingParams, extra_layers: int) -> list[Planned]:
    """The servers of one group, which share a target: those of `params.urls`, else one of each kind."""
    names = params.urls or ["plain", "dflash", *(f"ddtree-{budget}" for budget in params.budgets)]
    return [_of_name(name, params.topk_cap, extra_layers) for name in names]


def _of_name(name: str, topk_cap: int, extra_layers: int) -> Planned:
    method, _, budget = name.partition("-")
    if method == "plain":
        return Planned(name, "plain", None, None, extra_layers)
    if method == "dflash":
        return Planned(name, "dflash", None, None, extra_layers)
    return Planned(name, "ddtree", int(budget), topk_cap, extra_layers)
