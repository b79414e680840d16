"""How a sweep's jobs are spread: here over the physical cores and GPUs, or by the profile of a cluster."""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from ddtree.workbook.paths import project_root
from ddtree.workbook.sweep.devices import GPUS_VARIABLE, visible_gpus
from ddtree.workbook.sweep.plan import Cell

LOCAL = "local"
PROFILES = Path("params/sweeps/profiles")  # relative to the project root
NO_PROFILE = ("--profile", "none", "--workflow-profile", "none")


class ExecutorError(ValueError):
    """The cells cannot be started this way; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Jobs:
    """Snakemake's options and environment for one way to run cells; `local` ones it waits for when it is stopped."""

    options: list[str]
    local: bool
    note: str  # what the user should know before the start; "" if nothing
    environment: dict[str, str] = field(default_factory=dict)


def local_jobs(count: int, cells: list[Cell]) -> Jobs:
    """`count` cells at once, each with its share of the physical cores, at least one. Raises ExecutorError."""
    threads = threads_of_each(count, psutil.cpu_count(logical=False) or 1)
    gpus = visible_gpus() if any(cell.gpus for cell in cells) else []
    if not gpus and any(cell.gpus for cell in cells):
        raise ExecutorError("device is cuda, but CUDA sees no GPU here; use device: cpu or --executor slurm.")
    options = [*NO_PROFILE, "--executor", LOCAL]
    options += ["--cores", str(count * threads), "--set-threads", f"cell={threads}", "--resources", f"gpu={len(gpus)}"]
    if count == 1:
        return Jobs(options, True, "", {GPUS_VARIABLE: ",".join(gpus)})
    note = (
        f"{count} cells at once, {threads} thread(s) each: tokens/s are those of loaded cores, "
        "so compare speeds within a cell only."
    )
    return Jobs(options, True, note, {GPUS_VARIABLE: ",".join(gpus), "OMP_WAIT_POLICY": "PASSIVE"})


def threads_of_each(jobs: int, cores: int) -> int:
    return max(1, cores // jobs)


def remote_jobs(executor: str | None, profile: str | None, count: int | None) -> Jobs:
    """What the profile says, else the one shipped for `executor`; `count` jobs at most. Raises ExecutorError."""
    if (
        executor is not None
        and importlib.util.find_spec(f"snakemake_executor_plugin_{executor.replace('-', '_')}") is None
    ):
        raise ExecutorError(
            f"The executor {executor} needs the package snakemake-executor-plugin-{executor}: "
            f"{sys.executable} -m pip install snakemake-executor-plugin-{executor}"
        )
    shipped = project_root() / PROFILES / (executor or "")
    if profile is None and not (executor and shipped.is_dir()):
        raise ExecutorError(f"The executor {executor} has no profile in {PROFILES}/; name one by --profile.")
    if profile is None:
        profile = str(shipped)
    elif Path(profile).exists():
        profile = str(Path(profile).absolute())
    options = ["--profile", profile, "--workflow-profile", "none"]
    options += ["--executor", executor] if executor else []
    options += ["--jobs", str(count)] if count else []
    return Jobs(options, executor == LOCAL, "", {})


def environment_of(jobs: Jobs) -> dict[str, str]:
    """Our environment and what `jobs` adds; never a profile or a GPU list that only the shell knows of."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("SNAKEMAKE_PROFILE", GPUS_VARIABLE)}
    return inherited | jobs.environment


def _is_installed(executor: str) -> bool:
    module = f"snakemake_executor_plugin_{executor.replace('-', '_')}"
    return executor == LOCAL or importlib.util.find_spec(module) is not None
