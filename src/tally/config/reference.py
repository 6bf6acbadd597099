"""``docs/configuration.md``, from the settings themselves.

``python -m tally.config.reference > docs/configuration.md`` writes it; a test holds the two equal.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, MaxLen, MinLen
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from tally.config.pipeline import PipelineSettings
from tally.config.reader import READER_DEFAULTS
from tally.config.servers import (
    ConsoleSettings,
    KafkaSettings,
    MySQLSettings,
    ResultsSettings,
    SparkSettings,
)

HEADER: Final = """\
# Configuration

Written by `python -m tally.config.reference` from the settings in `src/tally/config/`; do not edit.

One file, `tally.toml` in the working directory, or the file that `TALLY_CONFIG` or
`tally --config FILE` names. It is validated as a whole: an error names every wrong key, its value
and what is allowed. An unknown key, or an unknown variable `TALLY_…`, is an error.

This is enough:

```toml
[pipelines.error_log]
topics = ["alog"]
```

The next batch uses a saved file; nothing needs a restart. After a change of an environment
variable, restart the processes that have it. What was counted before stays as it is until it is
[replayed](airflow.md#counting-again).

## Where a value comes from

The first place that has the value wins, key by key:

1. in Airflow's tasks and pages, the [connections](airflow.md#connections) `tally_kafka`,
   `tally_mysql`, `tally_results` and `tally_console`,
2. the environment: the variable below each key; lists and tables are JSON, such as
   `TALLY_PIPELINES__ERROR_LOG__LEVELS='["WARN", "ERROR"]'`,
3. the file that `TALLY_SECRETS_FILE` names: TOML of the same shape, readable by its owner alone,
4. `.tally/stack.toml` beside the configuration: the local stack, as `tally up` writes it,
5. `tally.toml`,
6. the default.

Passwords belong in the environment, the secrets file or a connection. They appear in no log, no
error and no command line.
"""

READER: Final = """\
### Defaults of `reader`

Options of Spark's Kafka reader; a key in `reader` replaces the one of the same name. An option that
decides which offsets are read is refused.
"""

_WORDS: Final = {
    str: "text",
    int: "whole number",
    float: "number",
    Path: "path",
    SecretStr: "text, secret",
    datetime: "time with its zone",
}


def render() -> str:
    """The whole page."""
    sections = [
        *_section("kafka", "TALLY_KAFKA", KafkaSettings),
        *_section("mysql", "TALLY_MYSQL", MySQLSettings),
        *_section("results", "TALLY_RESULTS", ResultsSettings, same_as="mysql"),
        *_section("spark", "TALLY_SPARK", SparkSettings),
        *_section("console", "TALLY_CONSOLE", ConsoleSettings),
        *_section("pipelines.NAME", "TALLY_PIPELINES__NAME", PipelineSettings),
    ]
    return "\n".join([HEADER, *sections, *_reader()])


def _section(
    name: str, prefix: str, model: type[BaseModel], *, same_as: str | None = None
) -> Iterator[str]:
    """A section with its keys, or with the name of the section whose keys and defaults it has."""
    yield f"## [{name}]\n"
    yield f"{model.__doc__}\n"
    if same_as:
        yield f"The keys and defaults of [[{same_as}]](#{same_as}); the variables are"
        yield f"`{prefix}__…`.\n"
        return
    yield "| key | value | default | meaning |\n|---|---|---|---|"
    for key, field in model.model_fields.items():
        cells = (
            f"`{key}`<br>`{prefix}__{key.upper()}`",
            _allowed(field),
            _default(field),
            _meaning(field),
        )
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
    yield ""


def _reader() -> Iterator[str]:
    yield READER
    yield "| key | value |\n|---|---|"
    for key, value in READER_DEFAULTS.items():
        yield f"| `{key}` | `{value}` |"
    yield ""


def _meaning(field: FieldInfo) -> str:
    text = " ".join((field.description or "").split())
    return re.sub(r"\bdocs/([\w-]+\.md)", r"[\1](\1)", text)


def _allowed(field: FieldInfo) -> str:
    return _kind(field.annotation) + _limits(field.metadata)


def _kind(annotation: Any) -> str:
    """A type, as the page names it; an optional one is named without None."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in arguments)
    if origin in {Union, UnionType}:
        return " or ".join(_kind(choice) for choice in arguments if choice is not NoneType)
    if origin is list:
        return f"list of {_kind(arguments[0])}"
    if origin is dict:
        return "table" if arguments[1] is Any else f"table of {_kind(arguments[1])}"
    return _WORDS[annotation]


def _limits(metadata: Sequence[Any]) -> str:
    limits = []
    for rule in metadata:
        match rule:
            case Ge(ge=least):
                limits.append(f"{_number(least)} or more")
            case Gt(gt=below):
                limits.append(f"more than {_number(below)}")
            case Le(le=most):
                limits.append(f"{_number(most)} at most")
            case MinLen():
                limits.append("not empty")
            case MaxLen(max_length=most):
                limits.append(f"{_number(most)} at most")
            case _:  # a function that checks; the key's own description says what is allowed
                continue
    return "".join(f", {limit}" for limit in limits)


def _number(value: Any) -> str:
    return f"{value:,}"


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
