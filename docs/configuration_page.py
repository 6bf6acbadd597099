"""``docs/configuration.md``, from the settings themselves.

``python -m docs.configuration_page > docs/configuration.md`` writes it; a test holds the two equal.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain
from pathlib import Path
from string import Template
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, MaxLen, MinLen
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from tally.config.names import PREFIX
from tally.config.servers import READER_DEFAULTS
from tally.config.settings import Settings, models_of

_WORDS: Final = {
    str: "text",
    int: "whole number",
    float: "number",
    Path: "path",
    SecretStr: "text, secret",
    datetime: "time with its zone",
}


_SAME: Final = {"results": "mysql"}
"""Sections that have the keys and defaults of another one."""


def render() -> str:
    """The whole page."""
    page = Path(__file__).with_name("configuration.template").read_text("utf-8")
    sections = chain.from_iterable(_section(*item) for item in models_of(Settings).items())
    reader = "\n".join(f"| `{key}` | `{value}` |" for key, value in READER_DEFAULTS.items())
    return Template(page).substitute(sections="\n".join(sections), reader=reader)


def _section(section: str, model: type[BaseModel]) -> Iterator[str]:
    name = "pipelines.NAME" if section == "pipelines" else section
    prefix = PREFIX + name.replace(".", "__").upper()
    yield f"## [{name}]\n"
    yield f"{model.__doc__}\n"
    if same := _SAME.get(section):
        yield f"The keys and defaults of [[{same}]](#{same}); the variables are"
        yield f"`{prefix}__…`.\n"
        return
    yield "| key | value | default | meaning |\n|---|---|---|---|"
    for key, field in model.model_fields.items():
        cells = (
            f"`{key}`<br>`{prefix}__{key.upper()}`",
            _kind(field.annotation) + _limits(field.metadata),
            _default(field),
            _meaning(field),
        )
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
    yield ""


def _meaning(field: FieldInfo) -> str:
    text = " ".join((field.description or "").split())
    return re.sub(r"\bdocs/([\w-]+\.md)", r"[\1](\1)", text)


def _kind(annotation: Any) -> str:
    """A type, as the page names it; an optional one is named without None."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(arguments[0])
    if origin is Literal:
        return " or ".join(f"`{choice}`" for choice in arguments)
    if origin in {Union, UnionType}:
        return " or ".join(_kind(choice) for choice in arguments if choice is not NoneType)
    if origin is list:
        return f"list of {_kind(arguments[0])}"
    if origin is dict:
        return "table" if arguments[1] is Any else f"table of {_kind(arguments[1])}"
    return _WORDS[annotation]


def _limits(metadata: Sequence[Any]) -> str:
    limits: list[str] = []
    for rule in metadata:
        match rule:
            case Ge(ge=least):
                limits.append(f"{least:,} or more")
            case Gt(gt=below):
                limits.append(f"more than {below:,}")
            case MinLen():
                limits.append("not empty")
            case Le(le=most) | MaxLen(max_length=most):
                limits.append(f"{most:,} at most")
            case _:  # a function that checks; the key's own description says what is allowed
                continue
    return "".join(f", {limit}" for limit in limits)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value is None:
        return "not set"
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    return f"`{json.dumps(value)}`"


if __name__ == "__main__":
    sys.stdout.write(render())
