"""Every tie case by the reference, and by the op's stand-in; tests/gpu/test_ties.py has the backends of a GPU."""

import sys

import fake_sgl_kernel
import pytest
from ddtree.backends import sgl
from ddtree.verify import VerifyResult, verify_tree
from tie_cases import TIE_CASES, TREES, TieCase


@pytest.mark.parametrize("case", TIE_CASES, ids=lambda case: case.name)
def test_reference(case: TieCase) -> None:
    case.check(verify_tree(*case.arguments(), backend="reference"))


@pytest.mark.parametrize("case", TIE_CASES, ids=lambda case: case.name)
def test_stock_op_behind_its_wrapper(case: TieCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sgl_kernel", fake_sgl_kernel)
    case.check(VerifyResult(*sgl.verify(*case.arguments())))


def test_cases_have_names_of_their_own_and_use_every_tree() -> None:
    assert len({case.name for case in TIE_CASES}) == len(TIE_CASES)
    assert {case.tree for case in TIE_CASES} == set(TREES)


@pytest.mark.parametrize("case", TIE_CASES, ids=lambda case: case.name)
def test_a_wrong_token_would_be_seen(case: TieCase) -> None:
    result = verify_tree(*case.arguments(), backend="reference")
    last = result.accept_index[0, result.accept_count[0]]
    result.predict[last] = 10  # of probability 0 in every row
    with pytest.raises(AssertionError, match="was emitted"):
        case.check(result)
