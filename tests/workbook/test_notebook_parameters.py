"""Each notebook's parameters cell and its model say the same names and defaults."""

import ast

import papermill
import pytest
from ddtree.workbook.params import PARAMS
from ddtree.workbook.paths import project_root


@pytest.mark.parametrize("stem", PARAMS)
def test_parameters_cell_equals_model(stem: str) -> None:
    found = papermill.inspect_notebook(str(project_root() / "notebooks" / f"{stem}.ipynb"))
    defaults = {name: ast.literal_eval(parameter["default"]) for name, parameter in found.items()}
    assert defaults == PARAMS[stem].defaults()
    for name, value in PARAMS[stem].defaults().items():
        assert type(defaults[name]) is type(value), name
