"""A served text is what `generate` gives for its prompt and seed: the same tokens of one random stream."""

from collections.abc import Iterator
from typing import Any

import pytest
import toy_sglang as toy
from ddtree.decode import generate
from ddtree.sampling import SamplingParams
from toy_models import ToyDrafter, ToyTarget
from toy_server import ALL, Job, Server, jobs_of_all_kinds, over_toys, started

WIDTH, TOPK_CAP = 9, 3


@pytest.fixture
def worker_module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    yield over_toys(monkeypatch)
    toy.forget()


def sampling_of(job: Job) -> SamplingParams:
    given = {"temperature": 1.0, "top_k": 1, "top_p": 1.0, "min_p": 0.0} | job.sampling
    top_k = 0 if given["top_k"] == ALL else given["top_k"]
    return SamplingParams(given["temperature"], top_k=top_k, top_p=given["top_p"], min_p=given["min_p"])


def replay(target: ToyTarget, drafter: ToyDrafter, job: Job, seed: int) -> list[int]:
    """The first token has no tree, as after a prefill; the next rounds begin with it as the root."""
    sampling = sampling_of(job)
    (first,) = generate(
        target, None, [job.ids], strategy="autoregressive", sampling=sampling, max_new_tokens=1, seed=seed
    )
    if job.tokens == 1:
        return first.tokens
    (rest,) = generate(
        target, drafter, [job.ids + first.tokens], strategy="tree", sampling=sampling, max_new_tokens=job.tokens - 1,
        budget=WIDTH - 1, topk_cap=TOPK_CAP, seed=seed, backend="reference"
    )  # fmt: skip
    return first.tokens + rest.tokens


def test_served_texts_are_replayed_from_their_seeds(worker_module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = started(worker_module, monkeypatch, WIDTH, TOPK_CAP)
    jobs = jobs_of_all_kinds(16)
    served = Server(worker).serve(jobs)
    pair = ToyTarget(worker.model_runner), ToyDrafter(worker.draft_model_runner)
    assert served == [replay(*pair, job, job.sampling["sampling_seed"]) for job in jobs]
    others = [replay(*pair, job, job.sampling["sampling_seed"] + 1) for job in jobs]
    sampled = [n for n, job in enumerate(jobs) if sampling_of(job).top_k != 1 and job.tokens > 4]
    assert any(served[n] != others[n] for n in sampled), "another seed gives another text"
