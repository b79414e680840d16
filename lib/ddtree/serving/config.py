"""Read a DDTREE server's settings from the environment, and its widths from SGLang's arguments.

SGLang parses its command line before it loads plugins, so settings that have no argument of SGLang are variables:

DDTREE_BUDGET             nodes of a draft tree, excluding the root (16); the verify width is one more
DDTREE_TOPK_CAP           children of one node, at most (4)
DDTREE_DRAFT_TEMPERATURE  divides the drafter's logits (1.0)
DDTREE_BACKEND            the verify backend: auto, fused, sgl or reference (auto)
DDTREE_ATTENTION          attention of a verify: tree (this project's kernel), sglang (SGLang's), or auto, which is tree
                          where the target allows it (auto)

A value that makes no sense is an error. Nothing here imports torch or SGLang when the module loads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ddtree.backends import BACKENDS

Number = TypeVar("Number", int, float)
BACKEND_CHOICES = ("auto", *BACKENDS)
ATTENTION_CHOICES = ("auto", "tree", "sglang")


@dataclass(frozen=True, slots=True)
class Settings:
    """Raises ValueError naming the variable, the value found and the range."""

    budget: int = 16
    topk_cap: int = 4
    draft_temperature: float = 1.0
    backend: str = "auto"
    attention: str = "auto"

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise ValueError(f"DDTREE_BUDGET is {self.budget}; a tree needs at least 1 node below its root.")
        if self.topk_cap < 1:
            raise ValueError(f"DDTREE_TOPK_CAP is {self.topk_cap}; a node needs room for at least 1 child.")
        if not (math.isfinite(self.draft_temperature) and self.draft_temperature > 0):
            raise ValueError(
                f"DDTREE_DRAFT_TEMPERATURE is {self.draft_temperature}; it divides logits, so it must be a finite "
                "number above 0."
            )
        if self.backend not in BACKEND_CHOICES:
            raise ValueError(f'DDTREE_BACKEND is "{self.backend}"; it must be one of {", ".join(BACKEND_CHOICES)}.')
        if self.attention not in ATTENTION_CHOICES:
            raise ValueError(
                f'DDTREE_ATTENTION is "{self.attention}"; it must be one of {", ".join(ATTENTION_CHOICES)}.'
            )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Unset variables take the default. Raises ValueError for text where a number must be."""
        default = cls()
        return cls(
            budget=_number(environment, "DDTREE_BUDGET", int, default.budget),
            topk_cap=_number(environment, "DDTREE_TOPK_CAP", int, default.topk_cap),
            draft_temperature=_number(environment, "DDTREE_DRAFT_TEMPERATURE", float, default.draft_temperature),
            backend=environment.get("DDTREE_BACKEND", default.backend),
            attention=environment.get("DDTREE_ATTENTION", default.attention),
        )


def verify_width(settings: Settings, environment: Mapping[str, str], num_draft_tokens: int | None) -> int:
    """Nodes of a verify with the root: budget + 1.

    `num_draft_tokens` is --speculative-num-draft-tokens, which counts the root and may be given instead of the budget.
    Raises ValueError if the variable and the argument are both given and disagree.
    """
    if num_draft_tokens is None:
        return settings.budget + 1
    if "DDTREE_BUDGET" in environment and num_draft_tokens != settings.budget + 1:
        raise ValueError(
            f"--speculative-num-draft-tokens is {num_draft_tokens} and DDTREE_BUDGET is {settings.budget}; the first "
            f"is the verify width, budget + 1, so it would be {settings.budget + 1}. Give one of the two."
        )
    if num_draft_tokens < 2:
        raise ValueError(
            f"--speculative-num-draft-tokens is {num_draft_tokens}; it counts the root, so it must be 2 or more."
        )
    return num_draft_tokens


def draft_block(server_args: Any) -> int | None:
    """The drafter's block size as its own config gives it (the verify width does not determine it), or None."""
    from sglang.srt.speculative.dflash_utils import parse_dflash_draft_config
    from sglang.srt.utils.hf_transformers_utils import get_config

    config = get_config(
        server_args.speculative_draft_model_path,
        trust_remote_code=False,  # a DFlash config is data
        revision=server_args.speculative_draft_model_revision,
    )
    block: int | None = parse_dflash_draft_config(draft_hf_config=config).resolve_block_size(default=None)
    return block


def _number(environment: Mapping[str, str], name: str, parse: Callable[[str], Number], default: Number) -> Number:
    text = environment.get(name)
    if text is None:
        return default
    try:
        return parse(text)
    except ValueError:
        kind = "a whole number" if parse is int else "a number"
        raise ValueError(f'{name} is "{text}"; it must be {kind}.') from None
