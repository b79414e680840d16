"""Values that papermill injected before an untagged cell of defaults are lost, and only those are called so."""

import pytest
from ddtree.workbook.params_validation import overwritten

DEFAULTS = "budget: int = 16  # nodes\nseed: int = 0"
INJECTED = "# Parameters\nbudget = 8\n"
CHECK = "params = check(globals())"


@pytest.mark.parametrize(
    ("executed", "lost"),
    [
        (["", INJECTED, DEFAULTS, CHECK], ["budget"]),
        (["", "import os", INJECTED, DEFAULTS, CHECK], ["budget"]),
        (["", "# Parameters\nseed = 1\nbudget = 8\nbudgte = 3", DEFAULTS, CHECK], ["budget", "seed"]),
        (["", DEFAULTS, INJECTED, CHECK], []),
        (["", DEFAULTS, INJECTED, CHECK, DEFAULTS, CHECK], []),  # run again by hand in JupyterLab
        (["", DEFAULTS, CHECK], []),
        (["", INJECTED, INJECTED, CHECK], []),
        (["", INJECTED, "other = 1", CHECK], []),
        (["", "# Parameters\nbudgte = 3", DEFAULTS, CHECK], []),
        ([""], []),
    ],
)
def test_values_injected_before_the_defaults_are_lost(executed: list[str], lost: list[str]) -> None:
    assert overwritten({"In": executed}, known={"budget", "seed"}) == lost


def test_outside_ipython_nothing_is_known() -> None:
    assert overwritten({"budget": 8}, known={"budget"}) == []
