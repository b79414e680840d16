"""YAML files that hold one mapping of plain values; a key that stands twice is refused, not overwritten."""

from pathlib import Path
from typing import Any

import yaml


class YamlError(ValueError):
    """The file cannot be read as one mapping of names to plain values."""


class _StrictLoader(yaml.SafeLoader):
    """The safe loader, but a repeated key is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise yaml.constructor.ConstructorError(
                None, None, f"{', '.join(repeated)} stands more than once", node.start_mark
            )
        return super().construct_mapping(node, deep)


def load_mapping(path: str | Path) -> dict[str, Any]:
    """Names to values of the YAML file `path`. Raises YamlError with a sentence that names the file."""
    try:
        content = _parse(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise YamlError(f"The parameter file {path} cannot be read: {error.strerror}.") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise YamlError(f"The parameter file {path} is not valid YAML: {' '.join(str(error).split())}.") from error
    if content is None:
        raise YamlError(f"The parameter file {path} holds no values, only comments or nothing.")
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise YamlError(f"The parameter file {path} must hold lines of the form `name: value`.")
    return content


def parse_value(name: str, text: str) -> Any:
    """The value that YAML `text` stands for; `name` is for the message of a YamlError."""
    try:
        return _parse(text)
    except yaml.YAMLError as error:
        raise YamlError(f"{name} is {text!r}, which is not valid YAML: {' '.join(str(error).split())}.") from error


def _parse(text: str) -> Any:
    return yaml.load(text, Loader=_StrictLoader)  # a SafeLoader
