"""Wrong parameters are found before a model is loaded, all at once, in sentences that help."""

from pathlib import Path
from typing import Any

import pytest
from ddtree.workbook.params import PARAMS, LiveParams, NotebookParams, ParameterError, ServingParams, TreeParams


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
    with pytest.raises(ParameterError, match=r"unknown parameter 'tempratures'; did you mean 'temperatures'\?"):
        LiveParams.check(namespace(LiveParams, tempratures=[0.5]))


def test_missing_parameter_is_named_with_what_is_needed() -> None:
    values = namespace()
    del values["budget"]
    with pytest.raises(ParameterError, match="budget is missing; a whole number from 0 up to 1024 is needed"):
        TreeParams.check(values)


def test_all_problems_stand_in_one_message() -> None:
    values = namespace(budget=-1, seed=True, budgte=4)
    del values["prompt"]
    with pytest.raises(ParameterError) as caught:
        TreeParams.check(values)
    text = str(caught.value)
    assert len(caught.value.problems) == 4
    assert all(word in text for word in ("budget is -1", "seed is True", "'budgte'", "prompt is missing"))


DEFAULTS_CELL = "\n".join(f"{name}: object = {value!r}" for name, value in TreeParams.defaults().items())


def test_papermills_cell_with_only_a_misspelling_is_found() -> None:
    executed = ["", DEFAULTS_CELL, "# Parameters\nbudgets = 3\n", "params = TreeParams.check(globals())"]
    with pytest.raises(ParameterError, match="unknown parameter 'budgets'"):
        TreeParams.check(namespace(In=executed, budgets=3))


def test_cell_may_be_run_again_after_later_cells() -> None:
    executed = ["", DEFAULTS_CELL, "check()", "total = 3\nrows = [1]", "check()"]
    assert TreeParams.check(namespace(In=executed, total=3, rows=[1])).budget == 16


def test_misspelling_corrected_in_the_notebook_is_forgiven() -> None:
    wrong = DEFAULTS_CELL.replace("budget:", "budgte:")
    executed = ["", wrong, "check()", DEFAULTS_CELL, "check()"]
    assert TreeParams.check(namespace(In=executed, budgte=16)).budget == 16
    with pytest.raises(ParameterError, match="did you mean 'budget'"):
        TreeParams.check(namespace(In=executed[:3], budgte=16))


@pytest.mark.parametrize(
    ("model", "name", "value", "sentence"),
    [
        (TreeParams, "budget", True, "budget is True (true/false), but a whole number"),
        (TreeParams, "budget", 16.0, "budget is 16.0 (number with a decimal point), but a whole number"),
        (TreeParams, "budget", 1025, "from 0 up to 1024"),
        (TreeParams, "temperature", -0.1, "a number from 0 up to 10"),
        (TreeParams, "temperature", float("nan"), "temperature is nan"),
        (TreeParams, "temperature", float("inf"), "temperature is inf"),
        (TreeParams, "temperature", False, "temperature is False (true/false), but a number"),
        (TreeParams, "draft_temperature", 0, 'a number above 0 up to 10 or "match"'),
        (TreeParams, "draft_temperature", "same", 'or "match"'),
        (TreeParams, "prompt", " \n", "text that is not empty"),
        (TreeParams, "threads", None, "null"),
        (TreeParams, "threads", "None", "YAML reads None as text"),
        (TreeParams, "temperature", "1e-6", "write 1.0e-6"),
        (TreeParams, "temperature", "1.0e1", "write 1.0e+1"),
        (TreeParams, "temperature", "1.0e-1", "write 1.0e-1 without quotes"),
        (TreeParams, "temperature", "0.5", "write 0.5 without quotes"),
        (TreeParams, "device", False, "put the text in quotes"),
        (TreeParams, "device", "gpu", 'one of "cpu", "cuda"'),
        (TreeParams, "seed", 2**63, "up to 9223372036854775807"),
        (LiveParams, "temperatures", [0.6, "1e-6"], "temperatures[1] is '1e-6' (text)"),
        (LiveParams, "temperatures", [0.6, 0.6], "every temperature may occur only once"),
        (LiveParams, "temperatures", [], "a list, at least one"),
        (LiveParams, "temperatures", 0.6, "a list, at least one"),
        (LiveParams, "prompts", ["a", ""], "prompts[1] is ''"),
        (LiveParams, "prompts", [], "a list, at least one"),
        (LiveParams, "extra_budgets", "[1, 2]", "so use a YAML file"),
        (LiveParams, "top_p", 0.0, "above 0 up to 1"),
        (LiveParams, "diversity_samples", -1, "from 0 up to 64"),
        (ServingParams, "budgets", [16, 16], "every entry may occur only once"),
        (ServingParams, "extra_layers", [-1], "extra_layers[0] is -1"),
        (ServingParams, "urls", [], "a mapping, each value text such as"),
        (ServingParams, "urls", "{}", "a mapping given by `papermill -p` arrives as text"),
        (ServingParams, "urls", {"plain": "localhost"}, "urls[plain] is 'localhost' (text), but text such as \"http"),
        (ServingParams, "urls", {"ddtree": "http://h:1"}, "urls takes no entry named 'ddtree' (servers that run"),
        (ServingParams, "server_arguments", {"x": [1]}, "server_arguments[x] is [1] (list), but text that is not"),
        (ServingParams, "server_arguments", {"x": None}, "true/false or a whole number or a number is needed"),
        (ServingParams, "server_arguments", {"mem-f": 1}, "server_arguments takes no entry named 'mem-f'"),
    ],
)
def test_wrong_value_is_named_with_what_would_be_right(
    model: type[NotebookParams], name: str, value: Any, sentence: str
) -> None:
    problem = only_problem(model, **{name: value})
    assert problem.startswith(name)
    assert sentence in problem


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
        ("# budget: 3\n", "holds no values"),
        ("- 1\n", "of the form `name: value`"),
        ("budget: [3\n", "not valid YAML"),
        ("budget: 3\nbudget: 4\n", "budget is given more than once"),
        ("grid:\n  budget: [1, 2]\n", "unknown parameter 'grid'"),
        ("temperature: 1e-6\n", "write 1.0e-6"),
        ("device: off\n", "put the text in quotes"),
        ("model: !!python/object:os.system {}\n", "not valid YAML"),
    ],
)
def test_wrong_yaml_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ParameterError) as caught:
        TreeParams.from_yaml(written(tmp_path, text))
    assert sentence in str(caught.value)


def test_file_without_values_and_missing_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"quick\.yaml holds no values"):
        TreeParams.from_yaml(written(tmp_path, "# nothing\n"))
    with pytest.raises(ParameterError, match=r"absent\.yaml cannot be read"):
        TreeParams.from_yaml(tmp_path / "absent.yaml")
