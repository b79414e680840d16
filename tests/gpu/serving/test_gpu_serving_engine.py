"""The plugin in SGLang's own engine: what requests that come and go were given, judged by the model in float32.

Needs SGLang with the plugin's entry point, and in DDTREE_TEST_TARGET a folder of SmolLM2-135M-Instruct in bf16.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

FOLDER = os.environ.get("DDTREE_TEST_TARGET")
PLUGINS = [found.name for found in importlib.metadata.entry_points(group="sglang.srt.plugins")]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.skipif(importlib.util.find_spec("sglang") is None, reason="sglang is not installed"),
    pytest.mark.skipif("ddtree" not in PLUGINS, reason="no entry point ddtree in sglang.srt.plugins"),
    pytest.mark.skipif(FOLDER is None, reason="DDTREE_TEST_TARGET names no folder of the target"),
]

PROMPTS = (
    "The capital of France is", "Once upon a time, in a village by the sea,", "def fibonacci(n):\n",
    "Photosynthesis is the process by which", "1, 2, 3, 4, 5, 6, 7, 8,", "Water boils at 100 degrees because",
)  # fmt: skip
NEAR_TIE = 0.5  # nats: the engine computes in bf16, the judge in float32
MOST_SIGMAS = 4.0
Job = tuple[str, dict[str, Any]]


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    import sglang
    from ddtree.models.zoo import fetch_drafter

    drafter = str(fetch_drafter("smollm2-135m"))
    engine = sglang.Engine(
        model_path=FOLDER, speculative_algorithm="DDTREE", speculative_draft_model_path=drafter,
        attention_backend="triton", speculative_draft_attention_backend="triton", sampling_backend="pytorch",
        grammar_backend="none", page_size=1, context_length=2048, mem_fraction_static=0.3, max_total_tokens=100_000,
        max_running_requests=32, cuda_graph_bs_decode=[1, 4, 16, 32], disable_prefill_cuda_graph=True, random_seed=1,
    )  # fmt: skip
    yield engine
    engine.shutdown()


@pytest.fixture(scope="module")
def judge() -> Any:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).cuda().eval()
    return model, AutoTokenizer.from_pretrained(FOLDER)


def arriving(engine: Any, jobs: list[Job]) -> list[list[int]]:
    """Every text, each asked a little after the one before, so that requests join and leave a running batch."""

    async def ask(place: int, prompt: str, sampling: dict[str, Any]) -> Any:
        await asyncio.sleep(0.03 * ((7 * place) % len(jobs)))
        return await engine.async_generate(prompt, sampling)

    async def everything() -> list[Any]:
        return await asyncio.gather(*(ask(place, *job) for place, job in enumerate(jobs)))

    texts = [out["output_ids"] for out in engine.loop.run_until_complete(everything())]
    assert [len(text) for text in texts] == [job[1]["max_new_tokens"] for job in jobs]
    return texts


def rows_of(judge: Any, prompt: str, text: list[int]) -> Tensor:
    """The target's logits, float64 [tokens, V], one row for each token of `text`."""
    model, tokenizer = judge
    ids = tokenizer(prompt)["input_ids"] + text
    with torch.no_grad():
        logits = model(torch.tensor([ids], device="cuda")).logits[0, -len(text) - 1 : -1]
    return logits.double()


def jobs_at(temperature: float, many: int = 36) -> list[Job]:
    return [
        (
            PROMPTS[n % len(PROMPTS)],
            {"temperature": temperature, "max_new_tokens": 10 + (11 * n) % 70, "ignore_eos": True, "sampling_seed": n},
        )
        for n in range(many)
    ]


def test_greedy_tokens_are_the_likeliest_up_to_near_ties(engine: Any, judge: Any) -> None:
    jobs = jobs_at(0.0)
    for (prompt, _), text in zip(jobs, arriving(engine, jobs), strict=True):
        rows = rows_of(judge, prompt, text)
        gaps = rows.amax(1) - rows.gather(1, torch.tensor(text, device="cuda")[:, None])[:, 0]
        worst = int(gaps.argmax())
        assert gaps[worst] < NEAR_TIE, f"token {worst} of the text after {prompt!r}"


@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_sampled_tokens_are_as_likely_as_the_law_says(engine: Any, judge: Any, temperature: float) -> None:
    """Summed over tokens, surprise less entropy has mean 0, and the variance that the rows themselves tell."""
    excess, variance = 0.0, 0.0
    jobs = jobs_at(temperature)
    for (prompt, _), text in zip(jobs, arriving(engine, jobs), strict=True):
        logps = (rows_of(judge, prompt, text) / temperature).log_softmax(1)
        entropy = -(logps.exp() * logps).sum(1)
        excess += float((-logps.gather(1, torch.tensor(text, device="cuda")[:, None])[:, 0] - entropy).sum())
        variance += float(((logps.exp() * logps.square()).sum(1) - entropy.square()).sum())
    assert abs(excess) < MOST_SIGMAS * variance**0.5


def test_filters_hold_in_a_mixed_batch(engine: Any, judge: Any) -> None:
    jobs = [
        (prompt, sampling | {"temperature": (0.0, 0.8, 1.0)[n % 3]} | ({"top_k": 3} if n % 3 else {}))
        for n, (prompt, sampling) in enumerate(jobs_at(0.0))
    ]
    for (prompt, _), text in zip(jobs, arriving(engine, jobs), strict=True):
        rows = rows_of(judge, prompt, text)
        own = rows.gather(1, torch.tensor(text, device="cuda")[:, None])[:, 0]
        third = rows.topk(3, dim=1).values[:, 2]
        assert bool((own > third - NEAR_TIE).all())


def test_what_is_not_served_is_refused(engine: Any) -> None:
    with pytest.raises(ValueError, match="DDTREE does not serve it"):
        engine.generate(PROMPTS[0], {"frequency_penalty": 0.5, "max_new_tokens": 4})
    with pytest.raises(ValueError, match="DDTREE does not return logprobs"):
        engine.generate(PROMPTS[0], {"max_new_tokens": 4}, return_logprob=True)
