"""Kernels of a serving round against the same in torch operations."""

from interpreted import printed_by


def test_kernels_give_what_torch_operations_give() -> None:
    assert printed_by("kernels_interpreted.py") == "equal"
