"""`python -m ddtree.workbook.bench_serving.trace NAME=URL [NAME=URL ...]`: what the GPU of each server does in a round.

SGLang's own profiler traces one sampled reply, and kernels are sorted by what they do. For idle servers of this
machine, whose trace files can be read here.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from ddtree.workbook.bench_serving.client import Client, HttpServer, RefusedError

PROMPT = "Write a short story about a robot who learns to paint."
SAMPLING = {"temperature": 1.0, "max_new_tokens": 64, "ignore_eos": True}
ON_GPU = {"kernel", "gpu_memcpy", "gpu_memset"}
KINDS = {  # of kernels; the first whose pattern a name matches
    "attention": r"^(attend|combine_splits|_fwd_)",
    "matrix products": r"nvjet|gemm|gemv|cutlass|splitk",
    "norm, rope, cache": r"norm|rope|act_and_mul|store_kv|set_kv",
    "tree": r"^(chunk_maxima|topk_from_chunks|select_nodes|link_nodes|write_tree_mask|map_accepted"
    r"|fused_verify|write_mask_row|draw_coins|move_path)$",
    "copies and rest": r"",
}


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch on the GPU, in microseconds."""

    name: str
    start: float
    took: float

    @property
    def kind(self) -> str:
        return next(kind for kind, pattern in KINDS.items() if re.search(pattern, self.name, re.IGNORECASE))


@dataclass(frozen=True, slots=True)
class Round:
    """Milliseconds of a mean round: of kernels by kind, and from one round to the next, the profiler included."""

    kinds: dict[str, float]
    elapsed: float

    @property
    def busy(self) -> float:
        return sum(self.kinds.values())


def kernels_in(trace: Path) -> list[Kernel]:
    """What ran on the GPU, in order, from a Chrome trace as torch's profiler writes it."""
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    found = [Kernel(e["name"], e["ts"], e["dur"]) for e in events if e.get("ph") == "X" and e.get("cat") in ON_GPU]
    return sorted(found, key=lambda kernel: kernel.start)


def mean_round(kernels: Sequence[Kernel], rounds: int) -> Round:
    """The later half of the rounds of a reply that took `rounds` of them, so neither prefill nor warm-up.

    A round begins where a kernel is launched that is launched once a round; with overlap one round more is under way
    when the reply ends, and the prefill may launch it too. Raises ValueError where there is none.
    """
    counts = Counter(kernel.name for kernel in kernels)
    marker = next((kernel.name for kernel in kernels if rounds <= counts[kernel.name] <= rounds + 2), None)
    if marker is None:
        raise ValueError(f"no kernel was launched {rounds} times, once a round; the trace is of something else.")
    begins = [kernel.start for kernel in kernels if kernel.name == marker]
    begins = begins[len(begins) // 2 :]
    many = len(begins) - 1
    kinds = dict.fromkeys(KINDS, 0.0)
    for kernel in kernels:
        if begins[0] <= kernel.start < begins[-1]:
            kinds[kernel.kind] += kernel.took / many / 1e3
    return Round(kinds, (begins[-1] - begins[0]) / many / 1e3)


def traced(url: str) -> Round:
    """One reply of the server, traced. Raises RefusedError, httpx.TransportError, or OSError for a trace not here."""
    server = HttpServer(url)
    try:
        client = Client(server)
        client.ask(PROMPT, **SAMPLING)
        with tempfile.TemporaryDirectory(prefix="ddtree-trace-") as folder:
            _post(server, "/start_profile", {"output_dir": folder, "activities": ["GPU"]})
            reply = client.ask(PROMPT, **SAMPLING)
            _post(server, "/stop_profile", {})
            traces = list(Path(folder).rglob("*.json.gz"))
            if not traces:
                raise FileNotFoundError(f"{url} left no trace in {folder}; it must run on this machine.")
            return mean_round(kernels_in(traces[0]), reply.rounds or reply.tokens - 1)
    finally:
        server.close()


def _post(server: HttpServer, path: str, body: dict[str, object]) -> None:
    answer = server.http.post(path, json=body)
    if answer.status_code != 200:
        raise RefusedError(f"{server.url}{path} answered {answer.status_code}: {answer.text[:500]}")


def lines(rounds: dict[str, Round]) -> list[str]:
    """A table of milliseconds, a line for each server."""
    heads = ["ms a round", *KINDS, "all kernels", "elapsed"]
    rows = [
        [name, *(f"{ms:.2f}" for ms in (*one.kinds.values(), one.busy, one.elapsed))] for name, one in rounds.items()
    ]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in (heads, *rows)]


def main(arguments: list[str]) -> int:
    """Exit code 0 with a table, 1 for a server that cannot be traced, 2 for wrong arguments."""
    named = dict(argument.partition("=")[::2] for argument in arguments)
    if not named or not all(named.values()):
        print("give servers that run as NAME=URL, as plain=http://127.0.0.1:30000.", file=sys.stderr)
        return 2
    try:
        rounds = {name: traced(url) for name, url in named.items()}
    except (RefusedError, httpx.TransportError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(lines(rounds)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
