"""Texts scored by the model in float32: how far each token was from the likeliest, and whether it was likely enough."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from ddtree.models.zoo import fetch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Surprise:
    """Of sampled tokens, in nats. Surprise less entropy has mean 0, and the variance that the rows themselves tell."""

    excess: float = 0.0
    variance: float = 0.0

    def __add__(self, other: Surprise) -> Surprise:
        return Surprise(self.excess + other.excess, self.variance + other.variance)

    @property
    def sigmas(self) -> float:
        return self.excess / self.variance**0.5


@cache
def _model() -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = fetch("smollm2-135m")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).cuda().eval()
    return model, AutoTokenizer.from_pretrained(folder)


@torch.no_grad()
def rows_of(prompt: str, text: list[int]) -> Tensor:
    """The target's logits, float64 [tokens, V], one row for each token of `text`."""
    model, tokenizer = _model()
    ids = tokenizer(prompt)["input_ids"] + text
    logits: Tensor = model(torch.tensor([ids], device="cuda")).logits[0, -len(text) - 1 : -1]
    return logits.double()


def _own(rows: Tensor, text: list[int]) -> Tensor:
    return rows.gather(1, torch.tensor(text, device=rows.device)[:, None])[:, 0]


def gaps(prompt: str, text: list[int]) -> Tensor:
    """Logit of the likeliest token less that of the text's own, [tokens]."""
    rows = rows_of(prompt, text)
    return rows.amax(1) - _own(rows, text)


def below_rank(prompt: str, text: list[int], rank: int) -> Tensor:
    """Logit of the token of this rank less that of the text's own, [tokens]; at most 0 within the filter top-k."""
    rows = rows_of(prompt, text)
    return rows.topk(rank, dim=1).values[:, -1] - _own(rows, text)


def surprise(prompt: str, text: list[int], temperature: float) -> Surprise:
    logps = (rows_of(prompt, text) / temperature).log_softmax(1)
    entropy = -(logps.exp() * logps).sum(1)
    variance = (logps.exp() * logps.square()).sum(1) - entropy.square()
    return Surprise(float((-_own(logps, text) - entropy).sum()), float(variance.sum()))
