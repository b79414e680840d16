"""What this machine computes with: cores, bf16 units, torch's threads, and how busy it is."""

from dataclasses import dataclass
from pathlib import Path

import psutil

from ddtree.workbook.doctor.finding import Finding

BF16_UNITS = ("amx_bf16", "avx512_bf16")  # flags of /proc/cpuinfo; with either, dtype auto is bfloat16


@dataclass(frozen=True, slots=True)
class Processor:
    """`load` is the mean number of runnable processes in the last minute."""

    bf16_units: tuple[str, ...]
    physical_cores: int
    torch_threads: int
    load: float


def this_processor(torch_threads: int) -> Processor:
    cpuinfo = Path("/proc/cpuinfo")
    flags = cpuinfo.read_text(encoding="utf-8", errors="replace").split() if cpuinfo.is_file() else []
    return Processor(
        bf16_units=tuple(unit for unit in BF16_UNITS if unit in flags),
        physical_cores=psutil.cpu_count(logical=False) or psutil.cpu_count() or 1,
        torch_threads=torch_threads,
        load=psutil.getloadavg()[0],
    )


def examine_processor(processor: Processor) -> list[Finding]:
    """Nothing here stops a run: each warning is about its speed."""
    cores, threads = processor.physical_cores, processor.torch_threads
    if processor.bf16_units:
        units = Finding("cpu", "ok", f"{_cores(cores)}, bf16 units {', '.join(processor.bf16_units)}: dtype bfloat16")
    else:
        units = Finding("cpu", "warning", f"{_cores(cores)}, no bf16 units: dtype float32, about half as fast")
    if threads > cores:
        remedy = f"export OMP_NUM_THREADS={cores}"
        use = Finding("threads", "warning", f"torch takes {threads} threads on {_cores(cores)}", remedy)
    elif processor.load > cores / 2:
        detail = f"other work loads these cores ({processor.load:.1f} on {cores}): times measured now would be too long"
        use = Finding("threads", "warning", detail, "wait for it to end, or set OMP_WAIT_POLICY=PASSIVE")
    else:
        use = Finding("threads", "ok", f"torch takes {threads} of {_cores(cores)}, load {processor.load:.1f}")
    return [units, use]


def _cores(number: int) -> str:
    return f"{number} physical core{'s' if number != 1 else ''}"
