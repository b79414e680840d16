"""GPUs of local jobs: each cell that runs on one has it alone, whatever other sweeps of the same user do."""

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

GPUS_VARIABLE = "DDTREE_SWEEP_GPUS"
CUDA_VARIABLE = "CUDA_VISIBLE_DEVICES"
WAIT_S = 0.5  # seconds between two looks for a free GPU


def visible_gpus() -> list[str]:
    """The names under which CUDA knows the GPUs that this process may use."""
    given = os.environ.get(CUDA_VARIABLE)
    if given is not None:
        return [name.strip() for name in given.split(",") if name.strip() not in ("", "-1")]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


@contextlib.contextmanager
def own_gpu() -> Iterator[None]:
    """Inside, CUDA sees one GPU of DDTREE_SWEEP_GPUS that no other cell has; waits until one is free.

    Where that variable is not set, as on a cluster, the scheduler has chosen already and nothing changes.
    """
    names = os.environ.get(GPUS_VARIABLE)
    if not names:
        yield
        return
    name, lock = _wait_for_one(names.split(","))
    os.environ[CUDA_VARIABLE] = name
    with lock:
        yield


def _wait_for_one(names: list[str]) -> tuple[str, TextIO]:
    folder = Path(tempfile.gettempdir()) / f"ddtree-gpus-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    while True:
        for name in names:
            lock = (folder / name.replace("/", "-")).open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
            else:
                return name, lock
        time.sleep(WAIT_S)
