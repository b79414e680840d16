"""Requests that come and go over trees from the builder's kernels, under Triton's interpreter."""

import pytest
import triton_on_cpu  # noqa: F401  before Triton
from ddtree import kernels
from toy_server import Server, jobs_of_all_kinds, one_by_one, over_toys, started

GRAPHS = (1, 2, 4)
ALONE = (1, 3)  # sampled ones; the interpreter is slow

with pytest.MonkeyPatch.context() as patch:
    calls: list[int] = []
    grown = kernels.select_nodes

    def counted(*args: object) -> object:
        calls.append(1)
        return grown(*args)  # type: ignore[arg-type]

    patch.setattr(kernels.ops, "run_on", lambda _: True)
    patch.setattr(kernels, "select_nodes", counted)
    module = over_toys(patch)
    jobs = jobs_of_all_kinds(6)
    server = Server(started(module, patch, 5, 2, requests=5, graphs=GRAPHS))
    texts = server.serve(jobs)
    assert max(server.sizes) >= 3
    for job, text in zip(jobs, texts, strict=True):
        if "top_k" not in job.sampling:
            assert text == one_by_one(server.worker.model_runner, job.ids, job.tokens), job
    for place in ALONE:
        alone = Server(started(module, patch, 5, 2, requests=5, graphs=GRAPHS)).serve([jobs[place]])
        assert [texts[place]] == alone, jobs[place]
    assert calls, "the trees came from the kernels"
print(len(jobs), "requests equal")
