"""Every tie case by the two backends of a GPU: the contract's tokens, and by name which answer rounding gave."""

from collections.abc import Callable

import pytest
import torch
from ddtree.backends import fused, sgl
from ddtree.retrieve import compile_retrieve
from ddtree.verify import verify_tree
from tie_cases import TIE_CASES, TieCase

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize("backend", ["fused", "sgl"])
@pytest.mark.parametrize("case", TIE_CASES, ids=lambda case: case.name)
def test_tie(case: TieCase, backend: str, record_property: Callable[[str, object], None]) -> None:
    reason = (fused if backend == "fused" else sgl).missing("cuda")
    if reason is not None:
        pytest.skip(reason)
    tree, _, *tensors = case.arguments()
    moved = tree.to("cuda")
    result = verify_tree(moved, compile_retrieve(moved), *(t.cuda() for t in tensors), backend=backend)
    found = case.check(result)
    if case.why:
        record_property("tokens", found)
        record_property("why", case.why)
        print(f'{backend}, "{case.name}": {found}')
