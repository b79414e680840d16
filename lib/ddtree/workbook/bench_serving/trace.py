"""Trace what the GPU of each server does in a round: `python -m ddtree.workbook.bench_serving.trace NAME=URL ...`

SGLang's own profiler traces one sampled reply, and kernels are sorted by what they do. The servers must be idle and run
on this machine, which reads their trace files.
"""

from __future__ import annotations

import contextlib
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

from ddtree.workbook.bench_serving.client import Client, RefusedError

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
    """A mean round in milliseconds: its kernels by kind, and the time to the next round, the profiler's included."""

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
    """The mean of the later half of a reply's `rounds`, which leaves out prefill and warm-up.

    A round begins at a kernel that is launched once per round; with overlap one more round is under way when the reply
    ends, and the prefill may launch it too. Raises ValueError where there is no such kernel.
    """
    counts = Counter(kernel.name for kernel in kernels)
    marker = next((kernel.name for kernel in kernels if rounds <= counts[kernel.name] <= rounds + 2), None)
    if marker is None:
        raise ValueError(f"no kernel was launched {rounds} times, once a round; the trace is of something else.")
    begins = [kernel.start for kernel in kernels if kernel.name == marker]
    begins = begins[len(begins) // 2 :]
    counted = len(begins) - 1
    kinds = dict.fromkeys(KINDS, 0.0)
    for kernel in kernels:
        if begins[0] <= kernel.start < begins[-1]:
            kinds[kernel.kind] += kernel.took / counted / 1e3
    return Round(kinds, (begins[-1] - begins[0]) / counted / 1e3)


def trace_round(url: str) -> Round:
    """One reply of the server, traced. Raises RefusedError, httpx.TransportError, or OSError for a missing trace."""
    with contextlib.closing(Client(url)) as client, tempfile.TemporaryDirectory(prefix="ddtree-trace-") as folder:
        client.request(PROMPT, **SAMPLING)
        client.post("/start_profile", {"output_dir": folder, "activities": ["GPU"]})
        reply = client.request(PROMPT, **SAMPLING)
        client.post("/stop_profile", {})
        trace = next(Path(folder).rglob("*.json.gz"), None)
        if trace is None:
            raise FileNotFoundError(f"{url} left no trace in {folder}; it must run on this machine.")
        return mean_round(kernels_in(trace), reply.rounds or reply.tokens - 1)


def table_lines(rounds: dict[str, Round]) -> list[str]:
    """A table of milliseconds, a line for each server."""
    rows = [["ms a round", *KINDS, "all kernels", "elapsed"]]
    for name, one in rounds.items():
        rows.append([name, *(f"{ms:.2f}" for ms in (*one.kinds.values(), one.busy, one.elapsed))])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def main(arguments: list[str]) -> int:
    """Exit code 0 with a table, 1 for a server that cannot be traced, 2 for wrong arguments."""
    named = dict(argument.partition("=")[::2] for argument in arguments)
    if not named or not all(named.values()):
        print("give running servers as NAME=URL, for example plain=http://127.0.0.1:30000.", file=sys.stderr)
        return 2
    try:
        rounds = {name: trace_round(url) for name, url in named.items()}
    except (RefusedError, httpx.TransportError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(table_lines(rounds)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
