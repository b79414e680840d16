"""One start of the servers for the whole folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ddtree.serving.client import HttpServer


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, HttpServer]]:
    from served import KINDS, serving  # where a test asks for servers, so that other tests need nothing of this

    with serving(list(KINDS), tmp_path_factory.mktemp("logs")) as running:
        yield running
