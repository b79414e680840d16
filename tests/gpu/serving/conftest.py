"""One start of the servers for the whole folder, and of those alone that the selected tests ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ddtree.workbook.bench_serving.client import Client


@pytest.fixture(scope="session")
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Client]]:
    from served import serving  # where a test asks for servers, so that other tests need nothing of this

    marks = [mark for item in request.session.items for mark in item.iter_markers("servers")]
    names = sorted({name for mark in marks for name in mark.args})
    with serving(names, tmp_path_factory.mktemp("logs")) as running:
        yield running
