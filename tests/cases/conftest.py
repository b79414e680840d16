"""The stand-in for sgl_kernel, for cases that need the op's buffers."""

import sys

import fake_sgl_kernel
import pytest


@pytest.fixture
def sgl_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sgl_kernel", fake_sgl_kernel)
