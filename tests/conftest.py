"""One torch thread and named hypothesis profiles, so that a run means the same on every machine; the real model.

Long files come first, so that with two workers none of them is left to the end.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import settings

if TYPE_CHECKING:
    from executed import Session

torch.set_num_threads(1)
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of processes that tests start: the cores are taken

settings.register_profile("dev", deadline=None, max_examples=60)
settings.register_profile("ci", deadline=None, max_examples=120, derandomize=True)
HERE = "ci" if os.environ.get("CI") else "dev"
settings.register_profile("all", settings.get_profile(HERE))
settings.load_profile(HERE)

LONGEST_FIRST = (
    "browser/test_lab.py",
    "test_notebooks.py",
    "test_live_interrupted_run.py",
    "test_distribution_of_text.py",
    "test_sweep_command.py",
    "backends/test_fused.py",
    "test_speed_notebook.py",
    "test_serving_notebook.py",
    "test_sweep_notebook.py",
    "test_run_signals.py",
    "kernels/test_builder.py",
)


def pytest_configure(config: pytest.Config) -> None:
    if not config.option.markexpr:  # `make test-all`
        settings.load_profile("all")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: next((n for n, name in enumerate(LONGEST_FIRST) if item.path.match(name)), 99))


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> "Session":
    """Notebooks that were run in this session, by whichever worker."""
    from executed import Session  # a GPU machine may hold only what the kernels need

    own = tmp_path_factory.getbasetemp()
    return Session((own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "executed")


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The folder of SmolLM2-135M, fetched if need be; without it a test is skipped, under CI it fails."""
    from ddtree.models.zoo import fetch  # a GPU machine may hold only what the kernels need

    try:
        return fetch("smollm2-135m")
    except (RuntimeError, OSError) as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"SmolLM2-135M is not in the cache and cannot be fetched: {error}")
