"""What a DDTREE server is set to, read once from the environment, and refused where a value makes no sense.

SGLang's command line is fixed before a plugin is asked, so the settings that it has no argument for are variables:

DDTREE_BUDGET             nodes of a draft tree beside its root (16); the verify width is one more
DDTREE_TOPK_CAP           children of one node, at most (4)
DDTREE_DRAFT_TEMPERATURE  divides the drafter's logits (1.0)
DDTREE_BACKEND            the verify backend: auto, fused, sgl or reference (auto)
DDTREE_ATTENTION          of a verify: tree, the project's kernel, sglang's own, or auto, the first if it can (auto)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

Number = TypeVar("Number", int, float)
BACKENDS = ("auto", "fused", "sgl", "reference")
ATTENTIONS = ("auto", "tree", "sglang")


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
            raise ValueError(f"DDTREE_BUDGET is {self.budget}; a tree needs at least 1 node beside its root.")
        if self.topk_cap < 1:
            raise ValueError(f"DDTREE_TOPK_CAP is {self.topk_cap}; a node needs room for at least 1 child.")
        if not (math.isfinite(self.draft_temperature) and self.draft_temperature > 0):
            raise ValueError(
                f"DDTREE_DRAFT_TEMPERATURE is {self.draft_temperature}; it divides logits, so it must be a finite "
                "number above 0."
            )
        if self.backend not in BACKENDS:
            raise ValueError(f'DDTREE_BACKEND is "{self.backend}"; it must be one of {", ".join(BACKENDS)}.')
        if self.attention not in ATTENTIONS:
            raise ValueError(f'DDTREE_ATTENTION is "{self.attention}"; it must be one of {", ".join(ATTENTIONS)}.')

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Unset variables take the default; one that is set to something else than a number is refused."""
        standard = cls()
        return cls(
            budget=_number(environment, "DDTREE_BUDGET", int, standard.budget),
            topk_cap=_number(environment, "DDTREE_TOPK_CAP", int, standard.topk_cap),
            draft_temperature=_number(environment, "DDTREE_DRAFT_TEMPERATURE", float, standard.draft_temperature),
            backend=environment.get("DDTREE_BACKEND", standard.backend),
            attention=environment.get("DDTREE_ATTENTION", standard.attention),
        )


def _number(environment: Mapping[str, str], name: str, read: Callable[[str], Number], standard: Number) -> Number:
    text = environment.get(name)
    if text is None:
        return standard
    try:
        return read(text)
    except ValueError:
        kind = "a whole number" if read is int else "a number"
        raise ValueError(f'{name} is "{text}"; it must be {kind}.') from None


def verify_width(settings: Settings, environment: Mapping[str, str], asked: int | None) -> int:
    """budget + 1; `asked` is --speculative-num-draft-tokens, which counts the root and may say it instead.

    Raises ValueError if the variable and the argument are both given and disagree.
    """
    if asked is None:
        return settings.budget + 1
    if "DDTREE_BUDGET" in environment and asked != settings.budget + 1:
        raise ValueError(
            f"--speculative-num-draft-tokens is {asked} and DDTREE_BUDGET is {settings.budget}; the first is the "
            f"verify width, budget + 1, so it would be {settings.budget + 1}. Give one of the two."
        )
    if asked < 2:
        raise ValueError(f"--speculative-num-draft-tokens is {asked}; it counts the root, so it must be 2 or more.")
    return asked


def draft_block(server_args: Any) -> int | None:
    """The drafter's own block size, read from its config; the verify width says nothing of it."""
    from sglang.srt.speculative.dflash_utils import parse_dflash_draft_config
    from sglang.srt.utils.hf_transformers_utils import get_config

    config = get_config(
        server_args.speculative_draft_model_path,
        trust_remote_code=False,  # a DFlash config is data
        revision=server_args.speculative_draft_model_revision,
    )
    block: int | None = parse_dflash_draft_config(draft_hf_config=config).resolve_block_size(default=None)
    return block
