"""Wrong parameters are found before a model is loaded, all at once, in sentences that help."""

from pathlib import Path
from typing import Any

import pytest
from ddtree.workbook.params import PARAMS, LiveParams, NotebookParams, ParameterError, ServingParams, TreeParams
from wording import names, tells


def namespace(model: type[NotebookParams] = TreeParams, **changes: Any) -> dict[str, Any]:
    """A notebook's globals after its parameters cell, without IPython's history."""
    return {"__name__": "__main__", "_": 3, "exit": 1, "Path": Path, "pytest": pytest, **model.defaults(), **changes}


def problems(model: type[NotebookParams], **values: Any) -> list[str]:
    with pytest.raises(ParameterError) as caught:
        model.from_mapping(values)
    return caught.value.problems


def only_problem(model: type[NotebookParams], **values: Any) -> str:
    (problem,) = problems(model, **values)
    return problem


@pytest.mark.parametrize("model", PARAMS.values())
def test_defaults_are_valid_and_plain(model: type[NotebookParams]) -> None:
    assert model.check(namespace(model)) == model.from_mapping({})
    for value in model.defaults().values():
        assert type(value) in (str, int, float, list, dict)


@pytest.mark.parametrize("model", PARAMS.values())
def test_every_parameter_is_described(model: type[NotebookParams]) -> None:
    for name in model.model_fields:
        assert model.schema_of(name)["description"]


def test_check_takes_the_values_of_the_namespace() -> None:
    params = TreeParams.check(namespace(budget=33, draft_temperature="match", temperature=0))
    assert (params.budget, params.draft_temperature, params.temperature) == (33, "match", 0.0)
    assert isinstance(params.temperature, float)


def test_misspelt_parameter_is_found_beside_its_default() -> None:
    with pytest.raises(ParameterError, match=names("tempratures temperatures")):
        LiveParams.check(namespace(LiveParams, tempratures=[0.5]))


def test_missing_parameter_is_named_with_what_is_needed() -> None:
    values = namespace()
    del values["budget"]
    with pytest.raises(ParameterError, match=names("budget 0 1024")):
        TreeParams.check(values)


def test_all_problems_stand_in_one_message() -> None:
    values = namespace(budget=-1, seed=True, budgte=4)
    del values["prompt"]
    with pytest.raises(ParameterError) as caught:
        TreeParams.check(values)
    text = str(caught.value)
    assert len(caught.value.problems) == 4
    assert all(tells(text, words) for words in ("budget -1", "seed True", "budgte", "prompt"))


DEFAULTS_CELL = "\n".join(f"{name}: object = {value!r}" for name, value in TreeParams.defaults().items())


def test_papermills_cell_with_only_a_misspelling_is_found() -> None:
    executed = ["", DEFAULTS_CELL, "# Parameters\nbudgets = 3\n", "params = TreeParams.check(globals())"]
    with pytest.raises(ParameterError, match=names("budgets")):
        TreeParams.check(namespace(In=executed, budgets=3))


def test_cell_may_be_run_again_after_later_cells() -> None:
    executed = ["", DEFAULTS_CELL, "check()", "total = 3\nrows = [1]", "check()"]
    assert TreeParams.check(namespace(In=executed, total=3, rows=[1])).budget == 16


def test_misspelling_corrected_in_the_notebook_is_forgiven() -> None:
    wrong = DEFAULTS_CELL.replace("budget:", "budgte:")
    executed = ["", wrong, "check()", DEFAULTS_CELL, "check()"]
    assert TreeParams.check(namespace(In=executed, budgte=16)).budget == 16
    with pytest.raises(ParameterError, match=names("budget")):
        TreeParams.check(namespace(In=executed[:3], budgte=16))


@pytest.mark.parametrize(
    ("model", "name", "value", "sentence"),
    [
        (TreeParams, "budget", True, "budget True"),
        (TreeParams, "budget", 16.0, "budget 16.0"),
        (TreeParams, "budget", 1025, "budget 1025 0 1024"),
        (TreeParams, "temperature", -0.1, "temperature -0.1 0 10"),
        (TreeParams, "temperature", float("nan"), "temperature nan"),
        (TreeParams, "temperature", float("inf"), "temperature inf"),
        (TreeParams, "temperature", False, "temperature False"),
        (TreeParams, "draft_temperature", 0, "draft_temperature 0 10 match"),
        (TreeParams, "draft_temperature", "same", "draft_temperature same match"),
        (TreeParams, "prompt", " \n", "prompt"),
        (TreeParams, "threads", None, "threads null"),
        (TreeParams, "threads", "None", "threads None"),
        (TreeParams, "temperature", "1e-6", "temperature 1e-6 1.0e-6"),
        (TreeParams, "temperature", "1.0e1", "temperature 1.0e1 1.0e+1"),
        (TreeParams, "temperature", "1.0e-1", "temperature 1.0e-1 1.0e-1"),
        (TreeParams, "temperature", "0.5", "temperature 0.5 0.5"),
        (TreeParams, "device", False, "device False"),
        (TreeParams, "device", "gpu", "device gpu cpu cuda"),
        (TreeParams, "seed", 2**63, "seed 9223372036854775807"),
        (LiveParams, "temperatures", [0.6, "1e-6"], "temperatures[1] 1e-6"),
        (LiveParams, "temperatures", [0.6, 0.6], "temperatures 0.6"),
        (LiveParams, "temperatures", [], "temperatures []"),
        (LiveParams, "temperatures", 0.6, "temperatures 0.6"),
        (LiveParams, "prompts", ["a", ""], "prompts[1] ''"),
        (LiveParams, "prompts", [], "prompts []"),
        (LiveParams, "extra_budgets", "[1, 2]", "extra_budgets [1, 2] YAML"),
        (LiveParams, "top_p", 0.0, "top_p 0.0 0 1"),
        (LiveParams, "diversity_samples", -1, "diversity_samples -1 0 64"),
        (ServingParams, "budgets", [16, 16], "budgets 16"),
        (ServingParams, "extra_layers", [-1], "extra_layers[0] -1"),
        (ServingParams, "urls", [], "urls []"),
        (ServingParams, "urls", "{}", "urls {} papermill -p"),
        (ServingParams, "urls", {"plain": "localhost"}, "urls[plain] localhost http"),
        (ServingParams, "urls", {"ddtree": "http://h:1"}, "urls ddtree"),
        (ServingParams, "server_arguments", {"x": [1]}, "server_arguments[x] [1]"),
        (ServingParams, "server_arguments", {"x": None}, "server_arguments[x] None"),
        (ServingParams, "server_arguments", {"mem-f": 1}, "server_arguments mem-f"),
    ],
)
def test_wrong_value_is_named_with_what_would_be_right(
    model: type[NotebookParams], name: str, value: Any, sentence: str
) -> None:
    problem = only_problem(model, **{name: value})
    assert problem.startswith(name)
    assert tells(problem, sentence)


def test_no_further_budget_is_a_choice() -> None:
    assert LiveParams.from_mapping({"extra_budgets": []}).extra_budgets == []


def test_arguments_of_servers_keep_their_types() -> None:
    arguments = {"mem_fraction_static": 0.1, "sleep_on_idle": True, "max_total_tokens": 20000, "backend": "triton"}
    found = ServingParams.from_mapping({"server_arguments": arguments}).to_plain()["server_arguments"]
    assert found == arguments
    assert [type(value) for value in found.values()] == [float, bool, int, str]


def test_parameters_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        TreeParams.from_mapping({}).budget = 3


def written(folder: Path, text: str) -> Path:
    path = folder / "quick.yaml"
    path.write_text(text)
    return path


def test_yaml_overrides_defaults(tmp_path: Path) -> None:
    params = TreeParams.from_yaml(written(tmp_path, "budget: 3\ntemperature: 1.0e-6\n"))
    assert params.to_plain() == {**TreeParams.defaults(), "budget": 3, "temperature": 1e-6}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("# budget: 3\n", "quick.yaml"),
        ("- 1\n", "name: value"),
        ("budget: [3\n", "YAML"),
        ("budget: 3\nbudget: 4\n", "budget"),
        ("grid:\n  budget: [1, 2]\n", "grid"),
        ("temperature: 1e-6\n", "temperature 1.0e-6"),
        ("device: off\n", "device"),
        ("model: !!python/object:os.system {}\n", "YAML"),
    ],
)
def test_wrong_yaml_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ParameterError) as caught:
        TreeParams.from_yaml(written(tmp_path, text))
    assert tells(caught.value, sentence)


def test_file_without_values_and_missing_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=names("quick.yaml")):
        TreeParams.from_yaml(written(tmp_path, "# nothing\n"))
    with pytest.raises(ParameterError, match=names("absent.yaml")):
        TreeParams.from_yaml(tmp_path / "absent.yaml")
