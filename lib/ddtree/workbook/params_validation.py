"""Read parameters from YAML and from a notebook's globals, and explain what is wrong with them."""

import ast
import difflib
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

PLAIN_TYPES = (str, int, float, list, tuple, dict, type(None))  # all that papermill can inject
IPYTHON_NAMES = {"In", "Out", "exit", "quit", "open", "get_ipython"}
INJECTED_HEADING = "# Parameters"  # papermill writes it as the first line of the cell that it injects
NULL_WORDS = {"none", "null", "nil", "~"}
TYPE_WORDS: dict[type, str] = {
    bool: "true/false",
    int: "whole number",
    float: "number with a decimal point",
    str: "text",
    list: "list",
    tuple: "tuple",
    dict: "mapping",
    type(None): "null",
}

PENALTY = "a penalty depends on the text before each node, which one row of logits per request cannot express"
BIAS = "the notebooks take no bias; the DDTREE server does, as logit_bias of a request"
GRAMMAR = "a grammar's mask would have to follow every branch of the tree"
LOGPROBS = "log-probabilities are not returned with the text; a notebook shows them from the logits of a round"
CACHE = "keys and values live in the project's own cache, whose rows are gathered after every round"
LOSSY = "a threshold below 1 accepts too much and changes the distribution; it is always 1"
DEPTH = "the depth is the drafter's block size - 1, all that it drafts in one pass; budget bounds it from above"

# Parameters of other systems that the notebooks do not take, and why.
UNSUPPORTED = {
    **dict.fromkeys(("frequency_penalty", "presence_penalty", "repetition_penalty"), PENALTY),
    "logit_bias": BIAS,
    **dict.fromkeys(("grammar", "json_schema", "regex", "ebnf", "response_format", "guided_decoding"), GRAMMAR),
    **dict.fromkeys(("logprobs", "top_logprobs", "prompt_logprobs", "return_logprob"), LOGPROBS),
    **dict.fromkeys(("cache_implementation", "static_cache", "sliding_window", "attention_chunk_size"), CACHE),
    **dict.fromkeys(("page_size", "kv_cache_dtype"), CACHE),
    **dict.fromkeys(("threshold", "threshold_single", "threshold_acc"), LOSSY),
    **dict.fromkeys(("depth", "draft_depth", "block_size", "num_draft_tokens", "num_speculative_tokens"), DEPTH),
}


class YamlError(ValueError):
    """The file cannot be read as one mapping of names to plain values."""


class _StrictLoader(yaml.SafeLoader):
    """The safe loader, but a repeated key is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise yaml.constructor.ConstructorError(
                None, None, f"{', '.join(repeated)} is given more than once", node.start_mark
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


def candidates(namespace: dict[str, Any], *, known: set[str]) -> dict[str, Any]:
    """The known parameters that exist, and other plain values that a parameters cell set.

    With IPython's list of executed cells (`In`) only those cells count that hold papermill's heading or
    give a known parameter its current value, so a cell may be run again after later cells have set
    variables. Without it every public plain value counts.
    """
    executed = namespace.get("In")
    cell_names = _parameter_cell_names(executed, known) if isinstance(executed, list) else None
    return {
        name: value
        for name, value in namespace.items()
        if name in known or (_is_plain(name, value) and (cell_names is None or name in cell_names))
    }


def overwritten(namespace: dict[str, Any], *, known: set[str]) -> list[str]:
    """The known parameters that papermill injected before the cell of defaults, which then overwrote them.

    Papermill does so when no cell has the tag `parameters`; the given values would be lost without a message.
    """
    executed = namespace.get("In")
    setters = [source for source in executed if _assigned(source) & known] if isinstance(executed, list) else []
    if not setters or not setters[0].startswith(INJECTED_HEADING):
        return []
    again = {name for source in setters[1:] if not source.startswith(INJECTED_HEADING) for name in _assigned(source)}
    return sorted(_assigned(setters[0]) & known & again)


def _is_plain(name: str, value: object) -> bool:
    return not name.startswith("_") and name not in IPYTHON_NAMES and isinstance(value, PLAIN_TYPES)


def _parameter_cell_names(executed: list[str], known: set[str]) -> set[str]:
    superseded: set[str] = set()
    names: set[str] = set()
    for source in reversed(executed):
        assigned = _assigned(source)
        if source.startswith(INJECTED_HEADING) or (assigned & known) - superseded:
            names |= assigned
        superseded |= assigned & known
    return names


def _assigned(source: str) -> set[str]:
    try:
        statements = ast.parse(source).body
    except SyntaxError:  # a cell that failed to parse has set nothing
        return set()
    targets: list[ast.expr] = []
    for statement in statements:
        if isinstance(statement, ast.Assign):
            targets += statement.targets
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets.append(statement.target)
    return {target.id for target in targets if isinstance(target, ast.Name)}


def problems_of(error: ValidationError, schemas: dict[str, dict[str, Any]]) -> list[str]:
    """One sentence for each wrong parameter or list entry; `schemas` is the JSON schema of each parameter."""
    sentences: dict[str, str] = {}
    for detail in error.errors(include_url=False):
        name, *rest = detail["loc"]
        schema = schemas.get(str(name), {})
        in_mapping = schema.get("type") == "object" and rest
        entry = rest[0] if in_mapping else next((part for part in rest if isinstance(part, int)), None)
        where = f"{name}[{entry}]" if entry is not None else str(name)
        if where in sentences:  # a union reports once for each member
            continue
        if detail["type"] == "extra_forbidden":
            sentences[where] = _unknown(str(name), list(schemas))
            continue
        if in_mapping and rest[-1] == "[key]":
            sentences[where] = f"{name} takes no entry named {entry!r} ({schema['description']})."
            continue
        if entry is not None:
            schema = _values_of(schema) if in_mapping else schema["items"]
        reason = f" ({detail['ctx']['error']})" if detail["type"] == "value_error" else ""
        found = detail["input"]
        wrong = f"{where} is {found!r} ({type_word(found)})"
        sentences[where] = f"{wrong}, but {expected(schema)} is needed{reason}{_hint(found, schema)}."
    return list(sentences.values())


def missing_problem(name: str, schema: dict[str, Any]) -> str:
    """The sentence about a parameter that no cell has set."""
    return f"{name} is missing; {expected(schema)} is needed ({schema['description']})."


def overwritten_problem(names: list[str]) -> str:
    """The sentence about values that papermill put before the cell of defaults."""
    return (
        f"the values given for {', '.join(names)} were overwritten by the notebook's own: no cell has the tag "
        "`parameters`, so papermill put them before its cell of defaults; give that cell the tag."
    )


def type_word(value: object) -> str:
    """The type of `value` in the words of a parameter file."""
    return TYPE_WORDS.get(type(value), type(value).__name__)


def expected(schema: dict[str, Any]) -> str:
    """What a value must be, from its JSON schema."""
    if "anyOf" in schema:
        return " or ".join(expected(member) for member in schema["anyOf"])
    if "const" in schema:
        return f'"{schema["const"]}"'
    if "enum" in schema:
        return "one of " + ", ".join(f'"{choice}"' for choice in schema["enum"])
    if schema["type"] == "array":
        fewest = ", at least one" if schema.get("minItems") else ""
        return f"a list{fewest}, each entry {expected(schema['items'])}"
    if schema["type"] == "object":
        return f"a mapping, each value {expected(_values_of(schema))}"
    if schema["type"] == "boolean":
        return "true/false"
    if schema["type"] == "string":
        return f'text such as "{schema["examples"][0]}"' if "examples" in schema else "text that is not empty"
    return ("a whole number" if schema["type"] == "integer" else "a number") + _range(schema)


def _values_of(mapping: dict[str, Any]) -> dict[str, Any]:
    """The schema of a mapping's values, whose keys have one pattern."""
    (values,) = mapping["patternProperties"].values()
    schema: dict[str, Any] = values
    return schema


def _range(schema: dict[str, Any]) -> str:
    lowest = f" above {schema['exclusiveMinimum']:g}" if "exclusiveMinimum" in schema else ""
    if "minimum" in schema:
        lowest = f" from {schema['minimum']}"
    return f"{lowest} up to {schema['maximum']}" if "maximum" in schema else lowest


def _unknown(name: str, known: list[str]) -> str:
    if name in UNSUPPORTED:
        return f"'{name}' is unsupported: {UNSUPPORTED[name]}; leave it out."
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"the parameters are {', '.join(known)}."
    return f"unknown parameter '{name}'; {hint}"


def _hint(found: object, schema: dict[str, Any]) -> str:
    """What a reader of YAML, or of papermill's command line, most likely ran into."""
    wants_text = schema.get("type") == "string" or "enum" in schema
    if isinstance(found, bool) and wants_text:
        return "; YAML reads bare on, off, yes, no, true and false as true/false, so put the text in quotes"
    if found is None:
        return "; YAML reads an empty value, ~ and null as no value"
    if not isinstance(found, str) or wants_text:
        return ""
    if found.lower() in NULL_WORDS:
        return f"; YAML reads {found} as text (its word for no value is null), and a value is needed here"
    container = {"array": "list", "object": "mapping"}.get(schema.get("type", ""))
    if container and found.startswith(("[", "{")):
        return f"; a {container} given by `papermill -p` arrives as text, so use a YAML file"
    return _number_hint(found)


def _number_hint(found: str) -> str:
    try:
        float(found)
    except ValueError:
        return ""
    mantissa, exponent_mark, exponent = found.lower().partition("e")
    if not exponent_mark:
        return f"; write {found} without quotes"
    number = f"{mantissa if '.' in mantissa else mantissa + '.0'}e{exponent if exponent[0] in '+-' else '+' + exponent}"
    return f"; write {number} without quotes" if number == found else f"; YAML reads {found} as text, so write {number}"
