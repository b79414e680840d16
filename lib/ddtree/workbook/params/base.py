"""What every notebook takes, and how its values are checked: all problems at once, a sentence for each."""

from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ddtree.workbook.parameter_names import candidates, overwritten
from ddtree.workbook.parameter_problems import missing_problem, overwritten_problem, problems_of
from ddtree.workbook.params.fields import Text
from ddtree.workbook.plain_yaml import YamlError, load_mapping


class ParameterError(ValueError):
    """One or more parameters are wrong; the message has one sentence for each problem."""

    def __init__(self, notebook: str, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join([f"{notebook}: {len(problems)} wrong parameter(s).", *problems]))


class NotebookParams(BaseModel):
    """What every notebook takes. Frozen and strict: true is not 1, 16.0 is not 16, NaN is not a number."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    threads: int = Field(0, ge=0, le=256, description="CPU threads; 0 is all physical cores")
    seed: int = Field(0, ge=0, le=2**63 - 1, description="of every random draw in the notebook")
    out_dir: Text = Field("outputs/run", description="folder of the results, relative to the project root")

    @classmethod
    def check(cls, namespace: dict[str, Any]) -> Self:
        """The validated parameters of a notebook, from its `globals()`.

        A name that a parameters cell set and that is no parameter is an error, as is a missing parameter, or one
        whose injected value the cell of defaults has overwritten.
        Raises ParameterError with every problem at once.
        """
        values = candidates(namespace, known=set(cls.model_fields))
        missing = [missing_problem(name, cls.schema_of(name)) for name in cls.model_fields if name not in values]
        lost = overwritten(namespace, known=set(cls.model_fields))
        return cls._validated(values, [*missing, *([overwritten_problem(lost)] if lost else [])])

    @classmethod
    def from_mapping(cls, values: dict[str, Any]) -> Self:
        """Defaults overridden by `values`. Raises ParameterError with every problem at once."""
        return cls._validated(values, [])

    @classmethod
    def from_yaml(cls, path: str | Path) -> Self:
        """Defaults overridden by the YAML file `path`. Raises ParameterError, also for a file without values."""
        try:
            return cls.from_mapping(load_mapping(path))
        except YamlError as error:
            raise ParameterError(cls.__name__, [str(error)]) from error

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Name to default value, as plain Python values, in the order of the notebook's parameters cell."""
        return cls.model_validate({}).to_plain()

    @classmethod
    def schema_of(cls, name: str) -> dict[str, Any]:
        """The JSON schema of one parameter: type, range and description."""
        schema: dict[str, Any] = cls.model_json_schema()["properties"][name]
        return schema

    def to_plain(self) -> dict[str, Any]:
        """Only str, int, float, list and dict: papermill turns numpy scalars and tuples into text."""
        return self.model_dump(mode="json")

    @classmethod
    def _validated(cls, values: dict[str, Any], problems: list[str]) -> Self:
        model = None
        try:
            model = cls.model_validate(values)
        except ValidationError as error:
            problems = problems + problems_of(error, cls.model_json_schema()["properties"])
        if model is None or problems:
            raise ParameterError(cls.__name__, problems)
        return model
