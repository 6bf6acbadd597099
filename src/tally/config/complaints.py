"""The messages about invalid values: the key, the value and what is allowed.

A value is left out where the model has a secret, whatever the key's name: a password may have been
written under the wrong key.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, get_args, get_origin

from pydantic import BaseModel, SecretStr, ValidationError

from tally.config.sources import value_at, variable_of
from tally.formatting import close_to

_MESSAGES: Final[Mapping[str, str]] = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be a table",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be a list",
    "literal_error": "must be {expected}",
    "model_type": "must be a table",
    "string_too_short": "must not be empty",
    "string_type": "must be a text",
    "too_short": "must not be empty",
}
"""What is said instead of Pydantic's sentences, which are for programmers, by type of error."""

_IN_JSON: Final[Mapping[str, str]] = {
    "list_type": """'["a", "b"]'""",
    "dict_type": """'{"key": "value"}'""",
    "model_type": """'{"key": "value"}'""",
}

CORRECT_THEM: Final = "correct the keys named (docs/configuration.md lists them all)"
"""The next step after any complaint."""


def complaints(
    error: ValidationError,
    model: type[BaseModel],
    variables: Mapping[str, Any],
    prefix: str = "",
) -> list[str]:
    """A sentence per wrong key, each once, without secrets.

    Args:
        error: The error of the validation.
        model: The validated model, which says which values are secret.
        variables: What the environment sets, in the shape of the file: a variable that sets a wrong
            value is named.
        prefix: Where the model stands in the file; empty for all of it.
    """
    return list(
        dict.fromkeys(_complaint(item, model, variables, prefix) for item in error.errors())
    )


def in_lines(what: str, sentences: Sequence[str]) -> str:
    """What is not valid and why: on one line, or each of several reasons on a line of its own."""
    if len(sentences) == 1:
        return f"{what}: {sentences[0]}"
    reasons = ";\n  ".join(sentences)
    return f"{what}:\n  {reasons}"


def _complaint(item: Any, model: type[BaseModel], variables: Mapping[str, Any], prefix: str) -> str:
    # Pydantic puts names of union members into the location; the user knows only the file's keys.
    parts = [str(part) for part in item["loc"] if "[" not in str(part) and part != "datetime"]
    path = [*prefix.split("."), *parts] if prefix else parts
    key = ".".join(path) or "the whole file"
    if path and value_at(variables, path) == item["input"]:  # else another source overrides it
        key += f" (from {variable_of(path)})"
    message = _message(item)
    if isinstance(item["input"], str) and item["type"] in _IN_JSON and "(from " in key:
        message += f", in a variable as JSON: {_IN_JSON[item['type']]}"
    if item["type"] == "missing":
        return f"{key}: is required"
    if item["type"] == "extra_forbidden":
        section = _at(model, item["loc"][:-1])
        known = section.model_fields if _is_model(section) else ()
        return f"{key}: is no known key{close_to(str(item['loc'][-1]), known)}"
    if isinstance(item["input"], dict | BaseModel) or _holds_secret(_at(model, item["loc"])):
        return f"{key}: {message}"
    return f"{key} = {item['input']!r}: {message}"


def _message(item: Any) -> str:
    """What is allowed, in words of a configuration file."""
    said = _MESSAGES.get(item["type"])
    return said.format(**item.get("ctx", {})) if said else item["msg"].removeprefix("Value error, ")


def _at(annotation: Any, location: Sequence[int | str]) -> Any:
    """The type at a location below another; for a union, the union."""
    for part in location:
        annotation = _below(annotation, part)
    return annotation


def _below(annotation: Any, part: int | str) -> Any:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _below(arguments[0], part)
    if origin is dict and part != "[key]":
        return arguments[1]
    if origin is list:
        return arguments[0]
    if _is_model(annotation) and part in annotation.model_fields:
        return annotation.model_fields[part].annotation
    # A key that the model does not know, a dictionary's own key, or which of a union's types was
    # tried: it holds at most what its parent does.
    return annotation


def _holds_secret(annotation: Any) -> bool:
    """Whether a value of the type is a secret or has one in it."""
    if _is_model(annotation):
        return any(_holds_secret(field.annotation) for field in annotation.model_fields.values())
    if annotation is SecretStr:
        return True
    return any(_holds_secret(argument) for argument in get_args(annotation))


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
