"""100,000 request-rounds without growth or a lost slot, texts that fill the context, and a server that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest
from ddtree.models.zoo import fetch, fetch_drafter
from ddtree.workbook.bench_serving.client import Client, RefusedError
from ddtree.workbook.bench_serving.servers import model_folders, started
from served import BATCHES, NEEDS, PROMPTS, Asked, forget, launch_of, ports_for, together

pytestmark = NEEDS

ROUNDS = 100_000
AT_ONCE = 128  # twice as many as run at a time
GROWTH = 64 * 2**20  # bytes


def held_by(server: Client) -> int:
    """Bytes of the GPU that the processes of the server on this port hold, whatever else runs there."""
    import pynvml  # SGLang brings it

    port = server.url.rpartition(":")[2]
    leaders = [p for p in psutil.process_iter(["cmdline"]) if {"--port", port} <= set(p.info["cmdline"] or ())]
    family = {member.pid for leader in leaders for member in (leader, *leader.children(recursive=True))}
    pynvml.nvmlInit()
    on_gpu = pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(0))
    return sum(process.usedGpuMemory for process in on_gpu if process.pid in family)


@pytest.mark.servers("tree")
def test_a_hundred_thousand_request_rounds_leave_nothing_behind(servers: dict[str, Client]) -> None:
    """An idle server counts its own slots, and ends when one is lost; only then is its cache emptied."""
    server = servers["tree"]
    done, marks = 0, []
    while done < ROUNDS:
        sampling = [
            {"temperature": (0.0, 0.7, 1.0)[n % 3], "max_new_tokens": 40 + (n * 13) % 90, "ignore_eos": True}
            for n in range(AT_ONCE)
        ]
        prompts = [PROMPTS[n % len(PROMPTS)] + f" {done + n}" for n in range(AT_ONCE)]
        answers = server.generate(prompts, sampling)
        assert [len(a["output_ids"]) for a in answers] == [own["max_new_tokens"] for own in sampling]
        done += sum(answer["meta_info"]["spec_verify_ct"] for answer in answers)
        marks.append(held_by(server))
    time.sleep(2)
    forget(server)
    assert together(server, [Asked(PROMPTS[0], {"max_new_tokens": 8, "ignore_eos": True})])
    end = held_by(server)
    print(f"{done:,} request-rounds, memory held after the first {AT_ONCE}: {marks[0]:,}, at the end {end:,} bytes")
    assert marks[0] > 2**30, "a server holds its weights and its cache"
    assert end - marks[0] < GROWTH


@pytest.mark.servers("tree")
def test_texts_that_fill_the_context_end_there(servers: dict[str, Client]) -> None:
    long = [place % 1000 + 300 for place in range(1980)]
    sampling = [
        {"temperature": temperature, "max_new_tokens": tokens, "ignore_eos": True}
        for temperature, tokens in ((0.0, 66), (0.0, 60), (1.0, 66))
    ]
    answers = servers["tree"].generate([long, long[:500], long], sampling)
    assert [len(answer["output_ids"]) for answer in answers] == [66, 60, 66]


@pytest.mark.servers("tree")
def test_the_largest_batch_of_a_graph_fills_its_contexts(servers: dict[str, Client]) -> None:
    """The mask of such a verify is the longest that the graph's buffer must hold."""
    many = max(BATCHES)
    sampling = {"temperature": 0.0, "max_new_tokens": 66, "ignore_eos": True}
    prompts = [[place % 1000 + 300 for place in range(1980)]] * many
    answers = servers["tree"].generate(prompts, [sampling] * many)
    assert [len(answer["output_ids"]) for answer in answers] == [66] * many


def test_a_killed_server_serves_when_started_again(tmp_path: Path) -> None:
    """Killed while it answers: nothing that it leaves behind keeps the next one from serving."""
    with model_folders(fetch("smollm2-135m"), fetch_drafter("smollm2-135m"), 0) as pair:
        launch = launch_of("tree", pair, tmp_path, ports_for(1)[0])
        with launch.log.open("wb") as log:
            process = subprocess.Popen(
                launch.command, stdout=log, stderr=subprocess.STDOUT, env=os.environ | launch.environment,
                start_new_session=True,
            )  # fmt: skip
        server = Client(f"http://127.0.0.1:{launch.port}")
        try:
            server.wait(timeout_s=300)
            asked = [Asked(prompt, {"max_new_tokens": 1500, "ignore_eos": True}) for prompt in PROMPTS]
            failed = threading.Event()

            def ask() -> None:
                with suppress(httpx.TransportError, RefusedError):
                    together(server, asked)
                    return
                failed.set()

            asking = threading.Thread(target=ask)
            asking.start()
            time.sleep(1)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        asking.join(timeout=60)
        assert failed.is_set(), "the server was to be killed before it had answered"
        with started([launch], timeout_s=300) as (again,):
            reply = again.client.request(PROMPTS[0], temperature=0.0, max_new_tokens=32, ignore_eos=True)
            assert reply.tokens == 32
            assert reply.acceptance is not None
            assert reply.acceptance > 1
