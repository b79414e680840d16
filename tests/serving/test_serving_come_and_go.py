"""Requests that come and go, in graphs that pad: each has the text that it has alone."""

from collections.abc import Iterator
from typing import Any

import pytest
import toy_sglang as toy
from interpreted import printed_by
from toy_server import Server, jobs_of_all_kinds, one_by_one, over_toys, started

GRAPHS = (1, 2, 4, 8)


@pytest.fixture
def worker_module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    yield over_toys(monkeypatch)
    toy.forget()


@pytest.mark.parametrize(("width", "cap"), [(4, 1), (9, 3)])
@pytest.mark.parametrize("graphs", [(), GRAPHS])
def test_each_text_is_the_one_it_has_alone(
    worker_module: Any, monkeypatch: pytest.MonkeyPatch, width: int, cap: int, graphs: tuple[int, ...]
) -> None:
    jobs = jobs_of_all_kinds(24)
    server = Server(started(worker_module, monkeypatch, width, cap, requests=8, graphs=graphs))
    together = server.serve(jobs)
    assert len(server.sizes) >= 4, "batches of many sizes, most of them padded"
    assert sorted(server.free) == list(range(1, 8)), "every row is given back"
    for job, text in zip(jobs, together, strict=True):
        alone = Server(started(worker_module, monkeypatch, width, cap, requests=8, graphs=graphs))
        assert [text] == alone.serve([job])
        if "top_k" not in job.sampling:
            assert text == one_by_one(server.worker.model_runner, job.ids, job.tokens)


def test_each_text_is_the_one_it_has_alone_with_the_builders_kernels() -> None:
    """On a GPU trees come from kernels."""
    assert printed_by("come_and_go_interpreted.py").split()[-3:] == ["6", "requests", "equal"]
